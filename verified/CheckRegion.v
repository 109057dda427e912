(* One class *fused*, not two: what RoundingRegion.v calls an execution of a cell is one of CheckExecution.v.

   A tree of RoundingTree.v computes with numbers and does not say where they come from; a formula of CheckTrees.v does:
   each leaf is a constant, or read from a cell. `spells t f`: f is t, with every leaf named as one of these, and with a
   rounding wherever t rounds, flushes what it reads, or has formed a constant beforehand. Then whatever t computes,
   with operations that are near exact ones, f evaluates to; f meets no more roundings than t, and at most 2R + 1
   losses; and f multiplied out is t multiplied out, addend by addend. So a cell of a network that is computed by a tree
   whose named monomials are the products of the cell has a value that `check_sound` speaks of.

   The names are needed. `expands` compares monomials by their values and rooms alone, so that a tree 2 * 2 is one of a
   cell 4 * 1: as a number that is the same result, with the same bound, but nothing reads 1 there. *)
From Coq Require Import Reals ZArith List Permutation Lra Lia Psatz.
From Specgrad Require Import RoundingTree RoundingRegion CheckNumber CheckTrie CheckTrees CheckBend CheckExecution
  CheckFloat32.
Import ListNotations.
Open Scope R_scope.

Section Spelled.
Variable u : R.
Hypothesis u_nonneg : 0 <= u.

(* A constant that was formed with k roundings: one rounding as large as k. *)
Definition formed_beforehand k v := Rounded ((1 + u) ^ k - 1) (Constant v).
Definition minus f := Multiplied (Constant (-1)) f.
Inductive spells : tree -> formula -> Prop :=
  | spells_constant r : spells (Leaf r) (Rounded 0 (Constant r))
  | spells_read j r : spells (Leaf r) (Rounded 0 (Read j r))
  | spells_const v k : spells (Const v k) (formed_beforehand k v)
  | spells_neg a f : spells a f -> spells (Neg a) (minus f)
  | spells_add a b f g : spells a f -> spells b g -> spells (Add a b) (Rounded u (Added f g))
  | spells_sub a b f g : spells a f -> spells b g -> spells (Sub a b) (Rounded u (Added f (minus g)))
  | spells_mul a b f g : spells a f -> spells b g -> spells (Mul a b) (Rounded u (Multiplied f g))
  | spells_fma a b c f g h : spells a f -> spells b g -> spells c h ->
      spells (Fma a b c) (Rounded u (Added (Multiplied f g) h))
  | spells_div a v k f : spells a f -> spells (Div a v k) (Rounded u (Multiplied (formed_beforehand k (/ v)) f))
  | spells_recip v k : spells (Recip v k) (Rounded u (formed_beforehand k (/ v)))
  | spells_store a f : spells a f -> spells (Store a) (Rounded u f).

Lemma formed_evals k v x : formed u k v x -> evals (formed_beforehand k v) x (Rmax 0 (Rabs v)).
Proof.
  intros [f [F ->]]. assert (B : Rabs (f - 1) <= (1 + u) ^ k - 1).
  { pose proof (one_le_pow u u_nonneg k) as G. set (g := (1 + u) ^ k) in *. apply Rabs_le. split; [|lra].
    assert (2 - g <= / g); [|lra]. apply Rmult_le_reg_l with g; [lra|]. rewrite Rinv_r by lra. nra. }
  replace (v * f) with (v * (1 + (f - 1)) + 0) by ring. constructor; [constructor | exact B|].
  rewrite Rabs_R0. left. apply least_normal_pos.
Qed.
Lemma read_evals r x a : read least_normal r x -> evals a r 0 -> evals (Rounded 0 a) x (Rmax 0 (Rabs r)).
Proof.
  intros [-> | [-> S]] E.
  - replace r with (r * (1 + 0) + 0) at 1 by ring. constructor; [exact E | rewrite Rabs_R0; lra |].
    rewrite Rabs_R0. left. apply least_normal_pos.
  - replace 0 with (r * (1 + 0) + - r) at 2 by ring.
    constructor; [exact E | rewrite Rabs_R0; lra | now rewrite Rabs_Ropp].
Qed.

Section Operations.
Variable op : R -> R -> Prop.
Hypothesis op_near : forall x z, op x z -> near u least_normal x z.

(* Whatever an execution of the tree ends with, the formula evaluates to. *)
Theorem spelled_evals t y : computed u least_normal op t y -> forall f, spells t f -> exists m, evals f y m.
Proof.
  assert (Near : forall a x z m, op x z -> evals a x m -> evals (Rounded u a) z (Rmax m (Rabs x))).
  { intros. apply near_rounds; auto. }
  assert (Neg1 : forall a x m, evals a x m -> evals (minus a) (- x) (Rmax 0 m)).
  { intros a x m E. replace (- x) with (-1 * x) by ring. constructor; [constructor | exact E]. }
  intros C. induction C; intros f S; inversion S; subst; clear S;
    repeat match goal with IH : forall f, spells ?a f -> _, H : spells ?a _ |- _ => destruct (IH _ H) as [? ?];
      clear IH end.
  - eexists. apply read_evals; [eassumption | constructor].
  - eexists. apply read_evals; [eassumption | constructor].
  - eexists. now apply formed_evals.
  - eexists. apply Neg1. eassumption.
  - eexists. eapply Near; [eassumption|]. constructor; eassumption.
  - eexists. eapply Near; [eassumption|]. unfold Rminus. constructor; [eassumption | apply Neg1; eassumption].
  - eexists. eapply Near; [eassumption|]. constructor; eassumption.
  - eexists. eapply Near; [eassumption|]. constructor; [constructor; eassumption | eassumption].
  - eexists. eapply Near; [eassumption|]. unfold Rdiv. rewrite Rmult_comm. constructor; [|eassumption].
    apply formed_evals. now apply formed_inv.
  - eexists. eapply Near; [eassumption|]. apply formed_evals. now apply formed_inv.
  - eexists. eapply Near; eassumption.
Qed.
End Operations.

Lemma pow_max x n m : 0 <= x -> Rmax ((1 + x) ^ n) ((1 + x) ^ m) = (1 + x) ^ max n m.
Proof.
  intros X. destruct (Nat.max_spec n m) as [[L ->] | [L ->]]; [apply Rmax_right | apply Rmax_left];
    apply Rle_pow; try lra; lia.
Qed.
(* The formula meets as many roundings as the tree. *)
Theorem spelled_units t f : spells t f -> units_ok f /\ unit_product f = (1 + u) ^ RoundingTree.roundings t.
Proof.
  assert (G : forall k, 0 <= (1 + u) ^ k - 1) by (intros k; pose proof (one_le_pow u u_nonneg k); lra).
  intros S; induction S; simpl; repeat match goal with H : _ /\ _ |- _ => destruct H end;
    repeat match goal with H : unit_product _ = _ |- _ => rewrite H; clear H end;
    (split; [repeat split; auto; try lra|]); rewrite ?pow_max by exact u_nonneg;
      rewrite ?Rmult_1_l, <- ?pow_add, ?pow_max by exact u_nonneg;
    try ring.
  all: try (f_equal; rewrite ?pow_add; ring).
Qed.
(* And at most 2R + 1 losses. *)
Theorem spelled_losses t f : spells t f -> loss_product f <= (1 + least_normal) ^ (2 * RoundingTree.roundings t + 1).
Proof.
  pose proof least_normal_pos as T. set (x := least_normal) in *.
  assert (Up : forall n m, (n <= m)%nat -> (1 + x) ^ n <= (1 + x) ^ m) by (intros; apply Rle_pow; [lra | assumption]).
  assert (Pos : forall g, 1 <= loss_product g) by apply loss_product_1.
  assert (Max : forall a b n m k, a <= (1 + x) ^ n -> b <= (1 + x) ^ m -> (n <= k)%nat -> (m <= k)%nat ->
    Rmax a b <= (1 + x) ^ k).
  { intros a b n m k A B N M. apply Rmax_lub; [eapply Rle_trans; [exact A | now apply Up] | eapply Rle_trans;
      [exact B | now apply Up]]. }
  assert (Prod : forall a b n m k, 1 <= a -> 1 <= b -> a <= (1 + x) ^ n -> b <= (1 + x) ^ m -> (n + m <= k)%nat ->
    a * b <= (1 + x) ^ k).
  { intros a b n m k A1 B1 A B K. eapply Rle_trans; [|apply Up; exact K]. rewrite pow_add. apply Rmult_le_compat; lra. }
  assert (Once : forall a k, a <= (1 + x) ^ k -> (1 + x) * a <= (1 + x) ^ S k).
  { intros a k A. simpl. apply Rmult_le_compat_l; [lra | exact A]. }
  assert (One : 1 <= (1 + x) ^ 0) by (simpl; lra). assert (X : 1 + x <= (1 + x) ^ 1) by (simpl; lra).
  intros S; induction S; simpl loss_product; fold x; simpl RoundingTree.roundings; rewrite ?Rmult_1_r, ?Rmult_1_l.
  - simpl. lra.
  - simpl. lra.
  - eapply Rle_trans; [exact X|]. apply Up. lia.
  - exact IHS.
  - replace (2 * _ + 1)%nat with (Datatypes.S (2 * Nat.max (RoundingTree.roundings a) (RoundingTree.roundings b) + 2))
      by lia.
    apply Once. eapply Max; [exact IHS1 | exact IHS2 | lia | lia].
  - replace (2 * _ + 1)%nat with (Datatypes.S (2 * Nat.max (RoundingTree.roundings a) (RoundingTree.roundings b) + 2))
      by lia.
    apply Once. eapply Max; [exact IHS1 | exact IHS2 | lia | lia].
  - replace (2 * _ + 1)%nat with (Datatypes.S (2 * (RoundingTree.roundings a + RoundingTree.roundings b) + 2)) by lia.
    apply Once. eapply Prod; [auto | auto | exact IHS1 | exact IHS2 | lia].
  - replace (2 * _ + 1)%nat with (Datatypes.S (2 * Nat.max (RoundingTree.roundings a + RoundingTree.roundings b)
      (RoundingTree.roundings c) + 2)) by lia.
    apply Once. eapply Max; [eapply Prod; [auto | auto | exact IHS1 | exact IHS2 | reflexivity] | exact IHS3 | lia
      | lia].
  - replace (2 * _ + 1)%nat with (Datatypes.S (2 * (RoundingTree.roundings a + k) + 2)) by lia.
    apply Once. eapply Prod; [lra | auto | exact X | exact IHS | lia].
  - replace (2 * _ + 1)%nat with (Datatypes.S (2 * k + 2)) by lia. apply Once.
    eapply Rle_trans; [exact X | apply Up; lia].
  - replace (2 * _ + 1)%nat with (Datatypes.S (2 * RoundingTree.roundings a + 2)) by lia.
    apply Once. eapply Rle_trans; [exact IHS | apply Up; lia].
Qed.

(* An addend and a monomial: equal values; its factors, made at least 1, have no larger product. *)
Definition is_monomial (a : addend) (m : monomial) : Prop := value_of a = value m /\ width_of a <= room m /\
  0 <= width_of a.
Lemma is_times a b m n : is_monomial a m -> is_monomial b n -> is_monomial (times a b) (m ++ n).
Proof.
  intros [A1 [A2 A3]] [B1 [B2 B3]]. unfold is_monomial. rewrite value_times, width_times, value_app, room_app.
  split; [congruence|]. split; [apply Rmult_le_compat; assumption | now apply Rmult_le_pos].
Qed.
Lemma is_map a m l c : is_monomial a m -> Forall2 is_monomial l c ->
  Forall2 is_monomial (map (times a) l) (map (app m) c).
Proof. intros A F; induction F; simpl; constructor; auto using is_times. Qed.
Lemma is_products l c l' c' : Forall2 is_monomial l c -> Forall2 is_monomial l' c' ->
  Forall2 is_monomial (flat_map (fun a => map (times a) l') l) (products c c').
Proof. intros F F'; induction F; simpl; [constructor | apply Forall2_app; auto using is_map]. Qed.
Lemma is_constant c m : c = value m -> Rmax 1 (Rabs c) <= room m -> is_monomial (Addend c (Rmax 1 (Rabs c)) []) m.
Proof.
  intros V W. unfold is_monomial, value_of, width_of. simpl. pose proof (Rmax_l 1 (Rabs c)). rewrite !Rmult_1_r.
  repeat split; lra.
Qed.
Lemma is_read j r : is_monomial (Addend 1 1 [(j, r)]) [Times r].
Proof.
  unfold is_monomial, value_of, width_of. simpl. unfold at_least_1. pose proof (Rmax_l 1 (Rabs r)). repeat split; lra.
Qed.
Lemma over_room v : Rmax 1 (Rabs (/ v)) <= divisor v.
Proof. rewrite Rabs_inv. pose proof (divisor_ge v). apply Rmax_lub; lra. Qed.
(* Multiplied out, the formula is the tree, addend by addend. *)
Theorem spelled_expands t f : spells t f -> Forall2 is_monomial (addends f) (expand t).
Proof.
  assert (M1 : is_monomial (Addend (-1) (Rmax 1 (Rabs (-1))) []) [Times (-1)]).
  { apply is_constant; [simpl; ring|]. cbn [room]. rewrite room_minus_1, Rabs_m1, Rmax_left; lra. }
  assert (Minus : forall l c, Forall2 is_monomial l c ->
    Forall2 is_monomial (map (times (Addend (-1) (Rmax 1 (Rabs (-1))) [])) l ++ []) (negated c)).
  { intros l c F. rewrite app_nil_r. exact (is_map _ _ _ _ M1 F). }
  intros S; induction S; simpl.
  - constructor; [|constructor]. apply is_constant; simpl; unfold at_least_1; lra.
  - constructor; [apply is_read | constructor].
  - constructor; [|constructor]. apply is_constant; simpl; unfold at_least_1; lra.
  - now apply Minus.
  - now apply Forall2_app.
  - apply Forall2_app; [assumption | now apply Minus].
  - now apply is_products.
  - apply Forall2_app; [now apply is_products | assumption].
  - rewrite app_nil_r. apply (is_map _ [Over v]); [|exact IHS].
    apply is_constant; [simpl; ring | simpl; rewrite Rmult_1_r; apply over_room].
  - constructor; [|constructor]. pose proof (over_room v). apply is_constant; simpl; lra.
  - exact IHS.
Qed.
End Spelled.

(* The class: a cell that a tree computes, its monomials named, has the value by CheckExecution. *)
Theorem executed_computes net u stored fetched (op : R -> R -> Prop) k s t y f ms :
  0 <= u -> (forall x z, op x z -> near u least_normal x z) ->
  computed u least_normal op t y -> spells u t f ->
  (0 <= CheckExecution.roundings s)%Z -> (RoundingTree.roundings t <= Z.to_nat (CheckExecution.roundings s))%nat ->
  Permutation (addends f) ms -> all_match s (fetched k) 0 (terms s) ms ->
  (forall j w, In (j, w) (cells_read f) -> possible net u stored fetched j w) ->
  exists m, computes net u stored fetched k s y m.
Proof.
  intros U O C S R N P A K. destruct (spelled_evals u U op O t y C f S) as [m E]. exists m, f.
  destruct (spelled_units u U t f S) as [Un Ug]. repeat split; auto; [| |now exists ms].
  - rewrite Ug. apply Rle_pow; [lra | exact N].
  - eapply Rle_trans; [exact (spelled_losses u t f S)|]. apply Rle_pow; [pose proof least_normal_pos; lra|].
    unfold losses_allowed. lia.
Qed.
Lemma flipped {A B} (P : A -> B -> Prop) l m : Forall2 P l m -> Forall2 (fun b a => P a b) m l.
Proof. induction 1; constructor; auto. Qed.
(* So it is by `executed`: some tree of at most R roundings that expands to the cell c. What `fused` says of c, `check`
   says of the same tree: its addends have the values of c, in some order. *)
Theorem executed_spelled u (op : R -> R -> Prop) n c y : 0 <= u -> (forall x z, op x z -> near u least_normal x z) ->
  executed u least_normal op n c y ->
  exists t, computed u least_normal op t y /\ (RoundingTree.roundings t <= n)%nat /\ forall f, spells u t f ->
    (exists m, evals f y m) /\ units_ok f /\ unit_product f <= (1 + u) ^ n /\
    loss_product f <= (1 + least_normal) ^ (2 * n + 1) /\
    exists ms, Permutation (addends f) ms /\ Forall2 is_monomial ms c.
Proof.
  intros U O (t & C & (c' & P & A) & N). exists t. split; [exact C|]. split; [exact N|]. intros f S.
  destruct (spelled_units u U t f S) as [Un Ug]. split; [now apply (spelled_evals u U op O t)|]. split; [exact Un|].
  split; [rewrite Ug; apply Rle_pow; [lra | exact N]|].
  split; [eapply Rle_trans; [exact (spelled_losses u t f S)|]; apply Rle_pow;
    [pose proof least_normal_pos; lra | lia]|].
  pose proof (spelled_expands u t f S) as E.
  destruct (Permutation_Forall2 P (flipped _ _ _ E)) as (ms & Q & F).
  exists ms. split; [exact Q|]. apply flipped in F. clear - F A. revert ms F. induction A as [|m m' l l' [V W] _ IH];
    intros ms F; inversion F as [|a ? as' ? [X [Y Z]] F']; subst; constructor; auto.
  unfold is_monomial. rewrite <- V, <- W. auto.
Qed.
(* And every tree has such a formula: its leaves read as constants, for one. *)
Theorem every_tree_is_spelled u t : exists f, spells u t f.
Proof.
  induction t; repeat match goal with H : exists f, _ |- _ => destruct H end; eexists; econstructor; eassumption.
Qed.
