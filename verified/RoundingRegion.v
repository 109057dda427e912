(* A cell of a region, and every execution of it: any tree whose monomials are those of the cell.

   An expansion is a list of monomials, a monomial a list of factors and divisors. The bound of RoundingTree.v,
   written for the cell, does not depend on the tree: only R, the roundings that a monomial meets, does. So a
   compiler may merge layers, factor sums out or multiply them out, and change every order, and one number bounds all
   that it can do: `executed n c y` is the class *fused*, and `fused` its bound. `computed_le` and `no_overflow` say
   that no partial result is above most * (1 + u)^R: where that is finite, so is every number on the way. *)
From Coq Require Import Reals Psatz Lia List Permutation.
From Specgrad Require Import RoundingTree.
Import ListNotations.
Open Scope R_scope.

(* --- no partial result is larger than most * (1 + u)^n ----------------------------------------------------------- *)

Section Partials.
Variables u lost : R.
Hypothesis u_nonneg : 0 <= u.
Hypothesis lost_range : 0 <= lost <= 1.
Variable op : R -> R -> Prop.
Hypothesis op_near : forall x z, op x z -> near u lost x z.

Notation computed := (computed u lost).
Definition largest (t : tree) : R := most t * (1 + u) ^ roundings t.

Ltac each_most :=
  repeat match goal with
  | t : tree |- _ => lazymatch goal with _ : 1 <= most t |- _ => fail | _ => pose proof (most_ge_1 t) end
  end.

Lemma near_le x z p n : 1 <= p -> near u lost x z -> Rabs x <= p * (1 + u) ^ n -> Rabs z <= p * (1 + u) ^ S n.
Proof.
  intros Hp [Hz | [_ Hz]] Hx; pose proof (one_le_pow u u_nonneg n) as Hg; simpl; set (g := (1 + u) ^ n) in *.
  - replace z with ((z - x) + x) by ring. eapply Rle_trans; [apply Rabs_triang|].
    assert (u * Rabs x <= u * (p * g)) by (apply Rmult_le_compat_l; lra). lra.
  - assert (1 <= p * g) by nra. assert (0 <= u * (p * g)) by (apply Rmult_le_pos; lra). lra.
Qed.

Lemma formed_le k v x : formed u k v x -> Rabs x <= Rabs v * (1 + u) ^ k.
Proof.
  intros H. pose proof (formed_bound u u_nonneg _ _ _ H). unfold growth in *.
  replace x with ((x - v) + v) by ring. eapply Rle_trans; [apply Rabs_triang|]. lra.
Qed.

Lemma sum_le x y p q n m : 0 <= p -> 0 <= q -> Rabs x <= p * (1 + u) ^ n -> Rabs y <= q * (1 + u) ^ m ->
  Rabs (x + y) <= (p + q) * (1 + u) ^ max n m.
Proof.
  intros. eapply Rle_trans; [apply Rabs_triang|]. rewrite Rmult_plus_distr_r. apply Rplus_le_compat.
  - eapply Rle_trans; [eassumption|]. apply Rmult_le_compat_l; auto. apply pow_le_pow; [auto | lia].
  - eapply Rle_trans; [eassumption|]. apply Rmult_le_compat_l; auto. apply pow_le_pow; [auto | lia].
Qed.

Lemma product_le x y p q n m : Rabs x <= p * (1 + u) ^ n -> Rabs y <= q * (1 + u) ^ m ->
  Rabs (x * y) <= p * q * (1 + u) ^ (n + m).
Proof.
  intros. rewrite Rabs_mult, pow_add. replace (p * q * _) with ((p * (1 + u) ^ n) * (q * (1 + u) ^ m)) by ring.
  apply Rmult_le_compat; auto using Rabs_pos.
Qed.

Lemma divisor_le k v w : v <> 0 -> formed u k v w -> Rabs (/ w) <= divisor v * (1 + u) ^ k.
Proof.
  intros Hv H. eapply Rle_trans; [apply formed_le, formed_inv; eauto|]. rewrite Rabs_inv.
  apply Rmult_le_compat_r; [pose proof (one_le_pow u u_nonneg k); lra | apply divisor_ge].
Qed.

Theorem computed_le t y : computed op t y -> Rabs y <= largest t.
Proof.
  unfold largest. intros C; induction C; cbn [most roundings];
    each_most.
  - destruct (at_least_1_ge r). destruct H as [-> | [-> _]]; [|rewrite Rabs_R0]; simpl; lra.
  - eapply Rle_trans; [eapply formed_le; eassumption|]. apply Rmult_le_compat_r; [|apply at_least_1_ge].
    pose proof (one_le_pow u u_nonneg k); lra.
  - now rewrite Rabs_Ropp.
  - eapply near_le; [lra | eauto | apply sum_le; auto; lra].
  - eapply near_le; [lra | eauto |]. unfold Rminus. apply sum_le; try lra. now rewrite Rabs_Ropp.
  - eapply near_le; [nra | eauto | now apply product_le].
  - eapply near_le; [nra | eauto |]. apply sum_le; try nra. now apply product_le.
  - pose proof (divisor_ge v). eapply near_le; [nra | eauto |]. unfold Rdiv.
    apply product_le; auto. now apply divisor_le.
  - pose proof (divisor_ge v). eapply near_le; [lra | eauto | now apply divisor_le].
  - eapply near_le; [lra | eauto | assumption].
Qed.

Lemma largest_mono p q n m : 0 <= p -> p <= q -> (n <= m)%nat -> p * (1 + u) ^ n <= q * (1 + u) ^ m.
Proof.
  intros. apply Rmult_le_compat; auto; [pose proof (one_le_pow u u_nonneg n); lra | now apply pow_le_pow].
Qed.

(* The same execution, in which no operation has a result above b: none overflows. *)
Theorem no_overflow b t y :
  computed op t y -> largest t <= b -> computed (fun x z => op x z /\ Rabs z <= b) t y.
Proof.
  intros C; induction C; intros Hb;
    each_most;
    try (pose proof (divisor_ge v));
    econstructor; eauto;
    try (split; [eassumption | eapply Rle_trans; [|exact Hb]]);
    try (eapply computed_le; econstructor; eassumption);
    match goal with H : _ -> computed _ ?a ?x |- computed _ ?a ?x => apply H end;
    (eapply Rle_trans; [|exact Hb]); apply largest_mono; cbn [most roundings]; try lia; try nra.
Qed.
End Partials.

(* --- cells -------------------------------------------------------------------------------------------------------- *)

Inductive factor := Times (r : R) | Over (v : R).
Definition monomial := list factor.
Definition expansion := list monomial.

Definition factor_value f := match f with Times r => r | Over v => / v end.
Definition factor_room f := match f with Times r => at_least_1 r | Over v => divisor v end.
Fixpoint value (m : monomial) : R := match m with [] => 1 | f :: m' => factor_value f * value m' end.
Fixpoint room (m : monomial) : R := match m with [] => 1 | f :: m' => factor_room f * room m' end.
Fixpoint total (f : monomial -> R) (c : expansion) : R := match c with [] => 0 | m :: c' => f m + total f c' end.

Definition cell_exact := total value.
Definition cell_size := total (fun m => Rabs (value m)).
Definition cell_most := total room.

Definition negated : expansion -> expansion := map (cons (Times (-1))).
Definition products (a b : expansion) : expansion := flat_map (fun m => map (app m) b) a.

(* The tree, multiplied out. *)
Fixpoint expand (t : tree) : expansion :=
  match t with
  | Leaf r => [[Times r]]
  | Const v _ => [[Times v]]
  | Neg a => negated (expand a)
  | Add a b => expand a ++ expand b
  | Sub a b => expand a ++ negated (expand b)
  | Mul a b => products (expand a) (expand b)
  | Fma a b c => products (expand a) (expand b) ++ expand c
  | Div a v _ => map (cons (Over v)) (expand a)
  | Recip v _ => [[Over v]]
  | Store a => expand a
  end.

(* Monomials of equal factors, in whichever order and with whichever of them negated. *)
Definition alike (m m' : monomial) : Prop := value m = value m' /\ room m = room m'.
Definition expands (t : tree) (c : expansion) : Prop := exists c', Permutation (expand t) c' /\ Forall2 alike c' c.

Lemma value_app m m' : value (m ++ m') = value m * value m'.
Proof. induction m; simpl; [ring | rewrite IHm; ring]. Qed.
Lemma room_app m m' : room (m ++ m') = room m * room m'.
Proof. induction m; simpl; [ring | rewrite IHm; ring]. Qed.
Lemma alike_permutation m m' : Permutation m m' -> alike m m'.
Proof.
  intros P; induction P; unfold alike in *; simpl; [split; reflexivity | | split; ring |].
  - now destruct IHP as [-> ->].
  - destruct IHP1, IHP2; split; congruence.
Qed.

Lemma total_app f a b : total f (a ++ b) = total f a + total f b.
Proof. induction a; simpl; [ring | rewrite IHa; ring]. Qed.
Lemma total_ext f g c : (forall m, f m = g m) -> total f c = total g c.
Proof. intros H; induction c; simpl; congruence. Qed.
Lemma total_cons f x k c : (forall m, f (x :: m) = k * f m) -> total f (map (cons x) c) = k * total f c.
Proof. intros H; induction c; simpl; [ring | rewrite IHc, H; ring]. Qed.
Lemma total_products f a b :
  (forall m m', f (m ++ m') = f m * f m') -> total f (products a b) = total f a * total f b.
Proof.
  intros H. assert (Hm : forall m, total f (map (app m) b) = f m * total f b).
  { intros m. induction b; simpl; [ring | rewrite IHb, H; ring]. }
  induction a as [|m a IHa]; simpl; [ring|]. rewrite total_app, Hm. unfold products in IHa.
  etransitivity; [apply f_equal, IHa | ring].
Qed.
Lemma total_permutation f a b : Permutation a b -> total f a = total f b.
Proof. intros P; induction P; simpl; lra. Qed.

Lemma Rabs_m1 : Rabs (-1) = 1.
Proof. rewrite Rabs_left; lra. Qed.
Lemma room_minus_1 : factor_room (Times (-1)) = 1.
Proof. simpl. unfold at_least_1. rewrite Rabs_m1. apply Rmax_left; lra. Qed.

Lemma expand_exact t : cell_exact (expand t) = exact t.
Proof.
  unfold cell_exact. induction t; simpl; unfold negated; rewrite ?total_app, ?total_products by apply value_app;
    rewrite ?IHt, ?IHt1, ?IHt2, ?IHt3; try ring.
  - rewrite (total_cons _ _ (-1)) by reflexivity. rewrite IHt; ring.
  - rewrite (total_cons _ _ (-1)) by reflexivity. rewrite IHt2; ring.
  - rewrite (total_cons _ _ (/ v)) by reflexivity. rewrite IHt. unfold Rdiv; ring.
Qed.

Lemma expand_size t : cell_size (expand t) = size t.
Proof.
  assert (Happ : forall m m', Rabs (value (m ++ m')) = Rabs (value m) * Rabs (value m'))
    by (intros; rewrite value_app; apply Rabs_mult).
  assert (Hneg : forall m, Rabs (value (Times (-1) :: m)) = 1 * Rabs (value m))
    by (intros; simpl; rewrite Rabs_mult, Rabs_m1; reflexivity).
  unfold cell_size. induction t; simpl expand; unfold negated; simpl size;
    rewrite ?total_app, ?total_products by apply Happ; rewrite ?IHt, ?IHt1, ?IHt2, ?IHt3; try ring.
  - simpl. rewrite Rmult_1_r; ring.
  - simpl. rewrite Rmult_1_r; ring.
  - rewrite (total_cons _ _ 1) by apply Hneg. rewrite IHt; ring.
  - rewrite (total_cons _ _ 1) by apply Hneg. rewrite IHt2; ring.
  - rewrite (total_cons _ _ (/ Rabs v)).
    + rewrite IHt. unfold Rdiv; ring.
    + intros m. simpl. now rewrite Rabs_mult, Rabs_inv.
  - simpl. rewrite Rmult_1_r, Rabs_inv; ring.
Qed.

Lemma expand_most t : cell_most (expand t) = most t.
Proof.
  assert (Hneg : forall m, room (Times (-1) :: m) = 1 * room m)
    by (intros; change (factor_room (Times (-1)) * room m = 1 * room m); now rewrite room_minus_1).
  unfold cell_most. induction t; simpl expand; unfold negated; simpl most;
    rewrite ?total_app, ?total_products by apply room_app; rewrite ?IHt, ?IHt1, ?IHt2, ?IHt3; try ring.
  - simpl; ring.
  - simpl; ring.
  - rewrite (total_cons _ _ 1) by apply Hneg. rewrite IHt; ring.
  - rewrite (total_cons _ _ 1) by apply Hneg. rewrite IHt2; ring.
  - rewrite (total_cons _ _ (divisor v)) by reflexivity. rewrite IHt; ring.
  - simpl; ring.
Qed.

Lemma total_alike f a b : (forall m m', alike m m' -> f m = f m') -> Forall2 alike a b -> total f a = total f b.
Proof. intros H F; induction F; simpl; [reflexivity | rewrite (H x y) by assumption; lra]. Qed.

Lemma expands_equal t c : expands t c -> exact t = cell_exact c /\ size t = cell_size c /\ most t = cell_most c.
Proof.
  intros [c' [P F]]. rewrite <- expand_exact, <- expand_size, <- expand_most.
  unfold cell_exact, cell_size, cell_most. rewrite !(total_permutation _ _ _ P).
  repeat split; apply total_alike; trivial; intros m m' [H1 H2]; congruence.
Qed.

(* --- the class `fused` -------------------------------------------------------------------------------------------- *)

Section Fused.
Variables u lost : R.
Hypothesis u_nonneg : 0 <= u.
Hypothesis lost_range : 0 <= lost <= 1.
Variable op : R -> R -> Prop.
Hypothesis op_near : forall x z, op x z -> near u lost x z.

(* Some execution of the cell, in which no monomial meets more than n roundings, ends with y. *)
Definition executed (n : nat) (c : expansion) (y : R) : Prop :=
  exists t, computed u lost op t y /\ expands t c /\ (roundings t <= n)%nat.

Theorem fused n c y : executed n c y ->
  Rabs (y - cell_exact c) <= growth n u * cell_size c + growth (2 * n + 1) lost * cell_most c * (1 + u) ^ n.
Proof.
  intros [t [C [E Hn]]]. destruct (expands_equal _ _ E) as [<- [<- <-]].
  eapply Rle_trans; [eapply any_tree; eauto|].
  pose proof (losses_le t). pose proof (most_ge_1 t).
  apply (error_bound_mono u lost u_nonneg lost_range); auto using size_nonneg; try lia; lra.
Qed.

Theorem fused_no_overflow n c y b : executed n c y -> cell_most c * (1 + u) ^ n <= b ->
  exists t, computed u lost (fun x z => op x z /\ Rabs z <= b) t y /\ expands t c /\ (roundings t <= n)%nat.
Proof.
  intros [t [C [E Hn]]] Hb. destruct (expands_equal _ _ E) as [_ [_ Hm]].
  exists t. split; [|auto]. apply no_overflow; auto. eapply Rle_trans; [|exact Hb]. rewrite <- Hm.
  pose proof (most_ge_1 t). apply largest_mono; auto; lra.
Qed.
End Fused.
