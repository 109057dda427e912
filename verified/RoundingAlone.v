(* A node by itself: a sum of products of numbers that are read as they are.

   What an operation loses is not multiplied afterwards, so underflow costs at most `lost` per operation, whatever
   the factors are; and no partial result is larger than the sum of absolute values, up to rounding. That is sharper
   than what holds of a region (RoundingRegion.v), where a product may be multiplied again, and a loss with it.
   `alone` says which trees these are: products of two leaves, added up in any order, with or without fused
   multiply-adds, perhaps divided by a number from 1 on, or times its reciprocal, as an average is. The numbers are
   taken as they are read: what flushing makes of an input is known before. *)
From Coq Require Import Reals Psatz Lia.
From Specgrad Require Import RoundingTree RoundingSums.
Open Scope R_scope.

(* Products of two leaves, added up in any order; perhaps divided by a number from 1 on, or times its reciprocal. *)
Inductive alone : tree -> Prop :=
  | alone_leaf r : alone (Leaf r)
  | alone_product r s : alone (Mul (Leaf r) (Leaf s))
  | alone_neg a : alone a -> alone (Neg a)
  | alone_add a b : alone a -> alone b -> alone (Add a b)
  | alone_sub a b : alone a -> alone b -> alone (Sub a b)
  | alone_fma r s c : alone c -> alone (Fma (Leaf r) (Leaf s) c)
  | alone_div a v k : alone a -> 1 <= Rabs v -> alone (Div a v k)
  | alone_times a v k : alone a -> Rabs v <= 1 -> alone (Mul a (Const v k))
  | alone_fma_times a v k c : alone a -> Rabs v <= 1 -> alone c -> alone (Fma a (Const v k) c)
  | alone_store a : alone a -> alone (Store a).

Fixpoint operations (t : tree) : nat :=
  match t with
  | Leaf _ | Const _ _ => 0
  | Neg a => operations a
  | Add a b | Sub a b | Mul a b => S (operations a + operations b)
  | Fma a b c => S (operations a + operations b + operations c)
  | Div a _ _ => S (operations a)
  | Recip _ _ => 1
  | Store a => S (operations a)
  end.

(* The largest sum of absolute values inside: an average's before it is divided. *)
Fixpoint widest (t : tree) : R :=
  match t with
  | Add a b | Sub a b => widest a + widest b
  | Fma a (Const _ _) c => widest a + widest c
  | Fma a b c => size a * size b + widest c
  | Neg a | Div a _ _ | Store a | Mul a (Const _ _) => widest a
  | _ => size t
  end.

Section Alone.
Variables u lost : R.
Hypothesis u_nonneg : 0 <= u.
Hypothesis lost_nonneg : 0 <= lost.
Variable op : R -> R -> Prop.
Hypothesis op_near : forall x z, op x z -> near u lost x z.

(* Numbers are read as they are: what flushing makes of them is known before. *)
Notation computed := (computed u 0).

Definition within (n c : nat) (m v x : R) : Prop := Rabs (x - v) <= growth n u * m + INR c * lost * (1 + u) ^ n.

Lemma read_0 r x : read 0 r x -> x = r.
Proof.
  intros [-> | [-> H]]; [reflexivity|]. pose proof (Rabs_pos r).
  destruct (Req_dec r 0) as [-> | Hr]; [reflexivity | pose proof (Rabs_pos_lt r Hr); lra].
Qed.

Lemma within_step n c m v x z : Rabs v <= m -> near u lost x z -> within n c m v x -> within (S n) (S c) m v z.
Proof.
  unfold within, growth. intros Hv Hz Hx. pose proof (one_le_pow u u_nonneg n) as Hg. rewrite S_INR.
  pose proof (pos_INR c) as Hc. simpl. set (g := (1 + u) ^ n) in *. set (i := INR c) in *. pose proof (Rabs_pos v).
  assert (Hxs : Rabs x <= g * m + i * lost * g).
  { replace x with ((x - v) + v) by ring. eapply Rle_trans; [apply Rabs_triang|]. lra. }
  replace (z - v) with ((z - x) + (x - v)) by ring. eapply Rle_trans; [apply Rabs_triang|].
  assert (0 <= lost * ((1 + u) * g)) by (repeat apply Rmult_le_pos; lra).
  assert (0 <= u * (g * m)) by (repeat apply Rmult_le_pos; lra).
  assert (0 <= i * lost * (u * g)) by (repeat apply Rmult_le_pos; lra). destruct Hz as [Hz | [Hz _]].
  - assert (u * Rabs x <= u * (g * m + i * lost * g)) by (apply Rmult_le_compat_l; lra). lra.
  - assert (lost * 1 <= lost * ((1 + u) * g)) by (apply Rmult_le_compat_l; nra). lra.
Qed.

Lemma within_mono n n' c m v x : (n <= n')%nat -> 0 <= m -> within n c m v x -> within n' c m v x.
Proof.
  unfold within. intros Hn Hm H. eapply Rle_trans; [exact H|]. apply Rplus_le_compat.
  - apply Rmult_le_compat_r; auto using growth_mono.
  - apply Rmult_le_compat_l; [apply Rmult_le_pos; auto using pos_INR | now apply pow_le_pow].
Qed.

Lemma within_sum n n' c c' m m' v v' x x' : 0 <= m -> 0 <= m' ->
  within n c m v x -> within n' c' m' v' x' -> within (max n n') (c + c') (m + m') (v + v') (x + x').
Proof.
  intros Hm Hm' H H'. apply (within_mono n (max n n')) in H; [|lia | assumption].
  apply (within_mono n' (max n n')) in H'; [|lia | assumption]. unfold within in *. rewrite plus_INR.
  replace (x + x' - (v + v')) with ((x - v) + (x' - v')) by ring. eapply Rle_trans; [apply Rabs_triang|]. lra.
Qed.

Lemma within_opp n c m v x : within n c m v x -> within n c m (- v) (- x).
Proof. unfold within. intros H. replace (- x - - v) with (- (x - v)) by ring. now rewrite Rabs_Ropp. Qed.

(* Times a constant of at most 1. *)
Lemma within_times n c m v x k w f : 0 <= m -> Rabs v <= m -> Rabs w <= 1 -> formed u k w f ->
  within n c m v x -> within (n + k) c (m * Rabs w) (v * w) (x * f).
Proof.
  intros Hm Hv Hw [q [[Hq1 Hq2] ->]]. unfold within, growth. intros Hx. rewrite pow_add.
  pose proof (one_le_pow u u_nonneg n) as Hg; pose proof (one_le_pow u u_nonneg k) as Hk.
  set (g := (1 + u) ^ n) in *. set (h := (1 + u) ^ k) in *. set (e := INR c * lost) in *.
  assert (He : 0 <= e) by (apply Rmult_le_pos; auto using pos_INR).
  assert (Hq0 : 0 < q) by (eapply Rlt_le_trans; [|exact Hq1]; apply Rinv_0_lt_compat; lra).
  assert (Hi : 2 - h <= / h) by (apply Rmult_le_reg_l with h; [lra | rewrite Rinv_r by lra; nra]).
  assert (Hq : Rabs (q - 1) <= h - 1) by (apply Rabs_le; lra).
  replace (x * (w * q) - v * w) with (w * ((x - v) * q + v * (q - 1))) by ring. rewrite Rabs_mult.
  assert (Hin : Rabs ((x - v) * q + v * (q - 1)) <= (g * h - 1) * m + e * (g * h)).
  { eapply Rle_trans; [apply Rabs_triang|]. rewrite !Rabs_mult, (Rabs_pos_eq q) by lra.
    assert (Rabs (x - v) * q <= ((g - 1) * m + e * g) * h) by (apply Rmult_le_compat; try apply Rabs_pos; lra).
    assert (Rabs v * Rabs (q - 1) <= m * (h - 1)) by (apply Rmult_le_compat; auto using Rabs_pos). lra. }
  pose proof (Rabs_pos w).
  assert (Rabs w * Rabs ((x - v) * q + v * (q - 1)) <= Rabs w * ((g * h - 1) * m + e * (g * h)))
    by (apply Rmult_le_compat_l; lra).
  clearbody e g h. assert (0 <= (1 - Rabs w) * (e * (g * h))) by (repeat apply Rmult_le_pos; lra). lra.
Qed.

Lemma within_self n c m v : 0 <= m -> within n c m v v.
Proof.
  intros Hm. unfold within. rewrite Rminus_diag_eq, Rabs_R0 by reflexivity.
  pose proof (growth_nonneg u u_nonneg n). pose proof (one_le_pow u u_nonneg n).
  apply Rplus_le_le_0_compat; [now apply Rmult_le_pos | repeat apply Rmult_le_pos; auto using pos_INR; lra].
Qed.

Theorem alone_error t y : alone t -> computed op t y ->
  Rabs (y - exact t) <= growth (roundings t) u * size t + INR (operations t) * lost * (1 + u) ^ roundings t.
Proof.
  intros A. revert y. change (forall y, computed op t y -> within (roundings t) (operations t) (size t) (exact t) y).
  induction A; intros y C; inversion C; subst;
    repeat match goal with H : RoundingTree.computed _ _ _ (Leaf _) _ |- _ => inversion H; subst; clear H end;
    repeat match goal with H : RoundingTree.computed _ _ _ (Const _ _) _ |- _ => inversion H; subst; clear H end;
    repeat match goal with H : read 0 _ _ |- _ => apply read_0 in H; subst end.
  - apply within_self, Rabs_pos.
  - apply within_step with (r * s); auto; [apply (exact_le_size (Mul (Leaf r) (Leaf s)))|]. apply within_self.
    apply Rmult_le_pos; apply Rabs_pos.
  - apply within_opp; auto.
  - eapply within_step; eauto; [apply (exact_le_size (Add a b))|]. apply within_sum; auto using size_nonneg.
  - eapply within_step; eauto; [apply (exact_le_size (Sub a b))|]. unfold Rminus.
    apply within_sum; auto using size_nonneg, within_opp.
  - eapply within_step; eauto; [apply (exact_le_size (Fma (Leaf r) (Leaf s) c))|].
    apply (within_sum 0 (roundings c) 0 (operations c)); auto using size_nonneg.
    + apply Rmult_le_pos; apply Rabs_pos.
    + apply within_self. apply Rmult_le_pos; apply Rabs_pos.
  - eapply within_step; eauto; [apply (exact_le_size (Div a v k))|]. simpl. unfold Rdiv. rewrite <- Rabs_inv.
    apply within_times; auto using size_nonneg, exact_le_size.
    + rewrite Rabs_inv, <- Rinv_1. apply Rinv_le_contravar; lra.
    + now apply formed_inv.
  - eapply within_step; eauto; [apply (exact_le_size (Mul a (Const v k)))|]. simpl. rewrite Nat.add_0_r.
    apply within_times; auto using size_nonneg, exact_le_size.
  - eapply within_step; eauto; [apply (exact_le_size (Fma a (Const v k) c))|]. simpl. rewrite Nat.add_0_r.
    apply within_sum; auto using size_nonneg, within_times, exact_le_size.
    apply Rmult_le_pos; auto using size_nonneg, Rabs_pos.
  - eapply within_step; eauto. apply exact_le_size.
Qed.

(* --- overflow ----------------------------------------------------------------------------------------------------- *)

Definition reached (t : tree) : R := (widest t + INR (operations t) * lost) * (1 + u) ^ roundings t.

Lemma size_le_widest t : alone t -> size t <= widest t.
Proof.
  assert (T : forall s w v, 0 <= s -> s <= w -> v <= 1 -> s * v <= w).
  { intros s w v Hs Hw Hv. apply Rle_trans with (s * 1); [now apply Rmult_le_compat_l | lra]. }
  intros A; induction A; simpl; try lra; try pose proof (size_nonneg a).
  - unfold Rdiv. apply T; auto. rewrite <- Rinv_1. apply Rinv_le_contravar; lra.
  - apply T; auto.
  - apply Rplus_le_compat; auto.
Qed.

Lemma widest_nonneg t : alone t -> 0 <= widest t.
Proof. intros A. pose proof (size_le_widest t A). pose proof (size_nonneg t). lra. Qed.

Theorem alone_le t y : alone t -> computed op t y -> Rabs y <= reached t.
Proof.
  intros A C. pose proof (alone_error t y A C) as H. pose proof (exact_le_size t). pose proof (size_le_widest t A).
  pose proof (one_le_pow u u_nonneg (roundings t)). unfold reached, growth in *.
  replace y with ((y - exact t) + exact t) by ring. eapply Rle_trans; [apply Rabs_triang|].
  assert ((1 + u) ^ roundings t * size t <= (1 + u) ^ roundings t * widest t) by (apply Rmult_le_compat_l; lra). lra.
Qed.

Lemma reached_mono w w' c c' n n' b : 0 <= w -> w <= w' -> (c <= c')%nat -> (n <= n')%nat ->
  (w' + INR c' * lost) * (1 + u) ^ n' <= b -> (w + INR c * lost) * (1 + u) ^ n <= b.
Proof.
  intros Hw Hw' Hc Hn Hb. eapply Rle_trans; [|exact Hb]. pose proof (pos_INR c). pose proof (le_INR _ _ Hc).
  pose proof (one_le_pow u u_nonneg n).
  apply Rmult_le_compat; [|lra | | now apply pow_le_pow].
  - apply Rplus_le_le_0_compat; [assumption | now apply Rmult_le_pos].
  - apply Rplus_le_compat; [assumption | now apply Rmult_le_compat_r].
Qed.

(* The same execution, in which no operation has a result above b. *)
Theorem alone_no_overflow b t y :
  alone t -> computed op t y -> reached t <= b -> computed (fun x z => op x z /\ Rabs z <= b) t y.
Proof.
  intros A. revert y. induction A; intros y C Hb;
    match type of C with RoundingTree.computed _ _ _ ?t _ => assert (A' : alone t) by (constructor; assumption) end;
    assert (Hy : Rabs y <= b) by (eapply Rle_trans; [apply alone_le; eassumption | exact Hb]); clear A';
    inversion C; subst; econstructor; eauto;
    try (match goal with H : RoundingTree.computed _ _ _ ?l _ |- RoundingTree.computed _ _ _ ?l _ =>
           inversion H; subst; now constructor end).
  all: match goal with H : forall y, _ -> reached ?a <= _ -> _ |- RoundingTree.computed _ _ _ ?a _ =>
         apply H; [assumption | revert Hb; unfold reached; apply reached_mono; simpl; auto using widest_nonneg; try lia]
       end.
  all: repeat match goal with H : alone ?a |- _ => apply widest_nonneg in H end; try lra.
  assert (0 <= Rabs r * Rabs s) by (apply Rmult_le_pos; apply Rabs_pos). lra.
Qed.
End Alone.
