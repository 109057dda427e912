(* Any expression tree that a runtime evaluates in floating point.

   The computed value differs from the exact one by at most

       growth n u * size + growth c lost * most * (1 + u)^n

   where n counts the roundings that a monomial of the tree meets, c the places where it can lose something to
   underflow (c <= 2n + 1), size is the tree on absolute values, and most the tree with every factor f replaced by
   max(1, |f|). An operation is any relation between exact and computed results that is `near`: RoundingFormat.v
   shows that IEEE operations are, with or without flushing, stored or kept in a wider format. *)
From Coq Require Import Reals Psatz Lia List Permutation.
Import ListNotations.
Open Scope R_scope.

(* --- roundings in a row ------------------------------------------------------------------------------------------ *)

Definition growth (n : nat) (u : R) : R := (1 + u) ^ n - 1.

Section Growth.
Variable u : R.
Hypothesis u_nonneg : 0 <= u.

Lemma one_le_pow n : 1 <= (1 + u) ^ n.
Proof. apply pow_R1_Rle; lra. Qed.

Lemma pow_le_pow n m : (n <= m)%nat -> (1 + u) ^ n <= (1 + u) ^ m.
Proof. intros; apply Rle_pow; [lra | assumption]. Qed.

Lemma growth_nonneg n : 0 <= growth n u.
Proof. unfold growth; pose proof (one_le_pow n); lra. Qed.

Lemma growth_mono n m : (n <= m)%nat -> growth n u <= growth m u.
Proof. intros H; unfold growth; pose proof (pow_le_pow _ _ H); lra. Qed.
End Growth.

(* --- trees ------------------------------------------------------------------------------------------------------- *)

(* Leaf r      a number that is read: a value from outside, a weight, a bias
   Const v k   a constant v that was formed beforehand, with k roundings and without underflow
   Fma a b c   a*b + c, rounded once
   Div a v k   a over such a constant
   Recip v k   the reciprocal of such a constant
   Store a     a value that is rounded once more: stored, or converted *)
Inductive tree :=
  | Leaf (r : R)
  | Const (v : R) (k : nat)
  | Neg (a : tree)
  | Add (a b : tree)
  | Sub (a b : tree)
  | Mul (a b : tree)
  | Fma (a b c : tree)
  | Div (a : tree) (v : R) (k : nat)
  | Recip (v : R) (k : nat)
  | Store (a : tree).

Fixpoint exact (t : tree) : R :=
  match t with
  | Leaf r => r
  | Const v _ => v
  | Neg a => - exact a
  | Add a b => exact a + exact b
  | Sub a b => exact a - exact b
  | Mul a b => exact a * exact b
  | Fma a b c => exact a * exact b + exact c
  | Div a v _ => exact a / v
  | Recip v _ => / v
  | Store a => exact a
  end.

(* The tree on absolute values. *)
Fixpoint size (t : tree) : R :=
  match t with
  | Leaf r => Rabs r
  | Const v _ => Rabs v
  | Neg a => size a
  | Add a b => size a + size b
  | Sub a b => size a + size b
  | Mul a b => size a * size b
  | Fma a b c => size a * size b + size c
  | Div a v _ => size a / Rabs v
  | Recip v _ => / Rabs v
  | Store a => size a
  end.

Definition at_least_1 (r : R) : R := Rmax 1 (Rabs r).
Definition divisor (v : R) : R := Rmax 1 (Rmax (Rabs v) (/ Rabs v)).

(* The tree with every factor f replaced by max(1, |f|), every divisor v by max(1, |v|, 1/|v|). *)
Fixpoint most (t : tree) : R :=
  match t with
  | Leaf r => at_least_1 r
  | Const v _ => at_least_1 v
  | Neg a => most a
  | Add a b => most a + most b
  | Sub a b => most a + most b
  | Mul a b => most a * most b
  | Fma a b c => most a * most b + most c
  | Div a v _ => most a * divisor v
  | Recip v _ => divisor v
  | Store a => most a
  end.

(* The most roundings that a monomial of the tree meets. *)
Fixpoint roundings (t : tree) : nat :=
  match t with
  | Leaf _ => 0
  | Const _ k => k
  | Neg a => roundings a
  | Add a b => S (max (roundings a) (roundings b))
  | Sub a b => S (max (roundings a) (roundings b))
  | Mul a b => S (roundings a + roundings b)
  | Fma a b c => S (max (roundings a + roundings b) (roundings c))
  | Div a _ k => S (roundings a + k)
  | Recip _ k => S k
  | Store a => S (roundings a)
  end.

(* The most operations and operands of a monomial that can lose something to underflow. *)
Fixpoint losses (t : tree) : nat :=
  match t with
  | Leaf _ => 1
  | Const _ _ => 0
  | Neg a => losses a
  | Add a b => S (max (losses a) (losses b))
  | Sub a b => S (max (losses a) (losses b))
  | Mul a b => S (losses a + losses b)
  | Fma a b c => S (max (losses a + losses b) (losses c))
  | Div a _ _ => S (losses a)
  | Recip _ _ => 1
  | Store a => S (losses a)
  end.

Lemma losses_le t : (losses t <= 2 * roundings t + 1)%nat.
Proof. induction t; simpl; lia. Qed.

(* --- executions -------------------------------------------------------------------------------------------------- *)

Section Execution.
Variables u lost : R.

(* A number that is read: itself, or zero where it is so small that it may be flushed. *)
Definition read (r x : R) : Prop := x = r \/ (x = 0 /\ Rabs r <= lost).

(* A constant that was formed from v by k operations without underflow, of which none cancels. *)
Definition formed (k : nat) (v x : R) : Prop := exists f, / (1 + u) ^ k <= f <= (1 + u) ^ k /\ x = v * f.

(* What one operation makes of its exact result: an error of u relative to it, or one of `lost` in a small result. *)
Definition near (x y : R) : Prop := Rabs (y - x) <= u * Rabs x \/ (Rabs (y - x) <= lost /\ Rabs y <= 1).

(* `computed op t y`: some execution of t, with operations `op`, ends with y. *)
Inductive computed (op : R -> R -> Prop) : tree -> R -> Prop :=
  | computed_leaf r x : read r x -> computed op (Leaf r) x
  | computed_const v k x : formed k v x -> computed op (Const v k) x
  | computed_neg a x : computed op a x -> computed op (Neg a) (- x)
  | computed_add a b x y z : computed op a x -> computed op b y -> op (x + y) z -> computed op (Add a b) z
  | computed_sub a b x y z : computed op a x -> computed op b y -> op (x - y) z -> computed op (Sub a b) z
  | computed_mul a b x y z : computed op a x -> computed op b y -> op (x * y) z -> computed op (Mul a b) z
  | computed_fma a b c x y w z :
      computed op a x -> computed op b y -> computed op c w -> op (x * y + w) z -> computed op (Fma a b c) z
  | computed_div a v k x w z :
      computed op a x -> v <> 0 -> formed k v w -> op (x / w) z -> computed op (Div a v k) z
  | computed_recip v k w z : v <> 0 -> formed k v w -> op (/ w) z -> computed op (Recip v k) z
  | computed_store a x z : computed op a x -> op x z -> computed op (Store a) z.

Lemma computed_impl (op op' : R -> R -> Prop) t y :
  (forall x z, op x z -> op' x z) -> computed op t y -> computed op' t y.
Proof. intros H C; induction C; econstructor; eauto. Qed.

(* --- the bound --------------------------------------------------------------------------------------------------- *)

Hypothesis u_nonneg : 0 <= u.
Hypothesis lost_range : 0 <= lost <= 1.

Let G n := (1 + u) ^ n.
Let L n := (1 + lost) ^ n.
Let G_ge_1 n : 1 <= G n := one_le_pow u u_nonneg n.
Let L_ge_1 n : 1 <= L n := one_le_pow lost (proj1 lost_range) n.

Definition error_bound (n c : nat) (m p : R) : R := growth n u * m + growth c lost * p * (1 + u) ^ n.

Lemma at_least_1_ge r : 1 <= at_least_1 r /\ Rabs r <= at_least_1 r.
Proof. split; [apply Rmax_l | apply Rmax_r]. Qed.

Lemma divisor_ge v : 1 <= divisor v /\ / Rabs v <= divisor v.
Proof.
  split; [apply Rmax_l|]. eapply Rle_trans; [|apply Rmax_r]. apply Rmax_r.
Qed.

Lemma inv_abs_nonneg v : 0 <= / Rabs v.
Proof.
  destruct (Req_dec v 0) as [-> | H]; [rewrite Rabs_R0, Rinv_0; lra|].
  apply Rlt_le, Rinv_0_lt_compat, Rabs_pos_lt, H.
Qed.

Lemma size_nonneg t : 0 <= size t.
Proof.
  induction t; simpl; try apply Rabs_pos; try apply inv_abs_nonneg; try lra; try nra.
  unfold Rdiv. apply Rmult_le_pos; [assumption | apply inv_abs_nonneg].
Qed.

Lemma most_ge_1 t : 1 <= most t.
Proof.
  induction t; simpl; try (apply at_least_1_ge); try (apply divisor_ge); try lra; try nra.
  pose proof (divisor_ge v). nra.
Qed.

Lemma size_le_most t : size t <= most t.
Proof.
  induction t; simpl; try (apply at_least_1_ge); try (apply divisor_ge); try lra.
  - apply Rmult_le_compat; auto using size_nonneg.
  - apply Rplus_le_compat; auto. apply Rmult_le_compat; auto using size_nonneg.
  - unfold Rdiv. apply Rmult_le_compat; auto using inv_abs_nonneg, size_nonneg. apply divisor_ge.
Qed.

Lemma exact_le_size t : Rabs (exact t) <= size t.
Proof.
  induction t; simpl; try lra.
  - now rewrite Rabs_Ropp.
  - eapply Rle_trans; [apply Rabs_triang | lra].
  - unfold Rminus. eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_Ropp. lra.
  - rewrite Rabs_mult. apply Rmult_le_compat; auto using Rabs_pos.
  - eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_mult.
    apply Rplus_le_compat; auto. apply Rmult_le_compat; auto using Rabs_pos.
  - unfold Rdiv. rewrite Rabs_mult, Rabs_inv. apply Rmult_le_compat_r; auto using inv_abs_nonneg.
  - rewrite Rabs_inv. lra.
Qed.

(* One more operation on a value that is already off. *)
Lemma step x z v m p n c :
  Rabs v <= m -> 1 <= p -> near x z ->
  Rabs (x - v) <= error_bound n c m p -> Rabs (z - v) <= error_bound (S n) (S c) m p.
Proof.
  unfold error_bound, growth. intros Hv Hp Hz Hx.
  pose proof (G_ge_1 n) as Hg; pose proof (L_ge_1 c) as Hl; unfold G, L in *.
  assert (Hxs : Rabs x <= (1 + u) ^ n * (m + ((1 + lost) ^ c - 1) * p)).
  { replace x with ((x - v) + v) by ring. eapply Rle_trans; [apply Rabs_triang|]. lra. }
  replace (z - v) with ((z - x) + (x - v)) by ring. eapply Rle_trans; [apply Rabs_triang|]. simpl.
  set (g := (1 + u) ^ n) in *. set (l := (1 + lost) ^ c) in *.
  assert (Hm : 0 <= m) by (pose proof (Rabs_pos v); lra). destruct Hz as [Hz | [Hz _]].
  - assert (u * Rabs x <= u * (g * (m + (l - 1) * p))) by (apply Rmult_le_compat_l; lra).
    assert (0 <= lost * l * p * ((1 + u) * g)) by (repeat apply Rmult_le_pos; lra). nra.
  - assert (0 <= u * g * m) by (repeat apply Rmult_le_pos; lra).
    assert (0 <= (l - 1) * p * (u * g)) by (repeat apply Rmult_le_pos; lra).
    assert (1 <= l * p) by nra. assert (1 <= (1 + u) * g) by nra.
    assert (1 <= l * p * ((1 + u) * g)) by nra. nra.
Qed.

Lemma error_bound_mono n n' c c' m p :
  (n <= n')%nat -> (c <= c')%nat -> 0 <= m -> 0 <= p -> error_bound n c m p <= error_bound n' c' m p.
Proof.
  intros Hn Hc Hm Hp. unfold error_bound. apply Rplus_le_compat.
  - apply Rmult_le_compat_r; auto using growth_mono.
  - apply Rmult_le_compat.
    + apply Rmult_le_pos; auto. apply growth_nonneg; lra.
    + pose proof (G_ge_1 n); unfold G in *; lra.
    + apply Rmult_le_compat_r; auto. apply growth_mono; [lra | assumption].
    + apply pow_le_pow; auto.
Qed.

Lemma sum_step x y v w n n' c c' m m' p p' :
  0 <= m -> 0 <= m' -> 0 <= p -> 0 <= p' ->
  Rabs (x - v) <= error_bound n c m p -> Rabs (y - w) <= error_bound n' c' m' p' ->
  Rabs (x + y - (v + w)) <= error_bound (max n n') (max c c') (m + m') (p + p').
Proof.
  intros. replace (x + y - (v + w)) with ((x - v) + (y - w)) by ring.
  eapply Rle_trans; [apply Rabs_triang|].
  pose proof (error_bound_mono n (max n n') c (max c c') m p ltac:(lia) ltac:(lia) ltac:(auto) ltac:(auto)).
  pose proof (error_bound_mono n' (max n n') c' (max c c') m' p' ltac:(lia) ltac:(lia) ltac:(auto) ltac:(auto)).
  unfold error_bound in *. nra.
Qed.

Lemma product_step x y v w n n' c c' m m' p p' :
  Rabs v <= m -> Rabs w <= m' -> m <= p -> m' <= p' ->
  Rabs (x - v) <= error_bound n c m p -> Rabs (y - w) <= error_bound n' c' m' p' ->
  Rabs (x * y - v * w) <= error_bound (n + n') (c + c') (m * m') (p * p').
Proof.
  unfold error_bound, growth. intros Hv Hw Hp Hp' Hx Hy. rewrite !pow_add.
  pose proof (G_ge_1 n) as Hg; pose proof (G_ge_1 n') as Hg'; pose proof (L_ge_1 c) as Hl;
    pose proof (L_ge_1 c') as Hl'.
  unfold G, L in *. set (g := (1 + u) ^ n) in *. set (g' := (1 + u) ^ n') in *.
  set (l := (1 + lost) ^ c) in *. set (l' := (1 + lost) ^ c') in *.
  pose proof (Rabs_pos v); pose proof (Rabs_pos w).
  set (d := (g - 1) * m + (l - 1) * p * g) in *. set (d' := (g' - 1) * m' + (l' - 1) * p' * g') in *.
  assert (Hm : m + d = g * (m + (l - 1) * p)) by (unfold d; ring).
  assert (Hm' : m' + d' = g' * (m' + (l' - 1) * p')) by (unfold d'; ring).
  replace (x * y - v * w) with ((x - v) * (y - w) + (x - v) * w + v * (y - w)) by ring.
  eapply Rle_trans; [apply Rabs_triang|]. eapply Rle_trans; [apply Rplus_le_compat_r, Rabs_triang|]. rewrite !Rabs_mult.
  assert (Rabs (x - v) * Rabs (y - w) <= d * d') by (apply Rmult_le_compat; auto using Rabs_pos).
  assert (Rabs (x - v) * Rabs w <= d * m') by (apply Rmult_le_compat; auto using Rabs_pos).
  assert (Rabs v * Rabs (y - w) <= m * d') by (apply Rmult_le_compat; auto using Rabs_pos).
  assert (Hprod : d * d' + d * m' + m * d' = (g * g') * ((m + (l - 1) * p) * (m' + (l' - 1) * p')) - m * m').
  { replace ((g * g') * ((m + (l - 1) * p) * (m' + (l' - 1) * p')))
      with ((m + d) * (m' + d')) by (rewrite Hm, Hm'; ring).
    ring. }
  assert (Hin : (m + (l - 1) * p) * (m' + (l' - 1) * p') <= m * m' + (l * l' - 1) * (p * p')).
  { assert (0 <= (l - 1) * p * (p' - m')) by (repeat apply Rmult_le_pos; lra).
    assert (0 <= (l' - 1) * p' * (p - m)) by (repeat apply Rmult_le_pos; lra). nra. }
  assert (1 <= g * g') by nra. nra.
Qed.

Lemma formed_bound k v x : formed k v x -> Rabs (x - v) <= growth k u * Rabs v.
Proof.
  intros [f [[H1 H2] ->]]. replace (v * f - v) with ((f - 1) * v) by ring. rewrite Rabs_mult.
  apply Rmult_le_compat_r; [apply Rabs_pos|]. unfold growth. pose proof (G_ge_1 k) as Hg; unfold G in *.
  set (g := (1 + u) ^ k) in *. assert (Hi : 2 - g <= / g).
  { apply Rmult_le_reg_l with g; [lra|]. rewrite Rinv_r by lra. nra. }
  apply Rabs_le. lra.
Qed.

Lemma formed_inv k v x : v <> 0 -> formed k v x -> formed k (/ v) (/ x).
Proof.
  unfold formed. intros Hv [f [[H1 H2] ->]]. pose proof (G_ge_1 k) as Hg; unfold G in *. set (g := (1 + u) ^ k) in *.
  assert (Hf : 0 < f) by (eapply Rlt_le_trans; [|exact H1]; apply Rinv_0_lt_compat; lra).
  exists (/ f). split; [|now rewrite Rinv_mult]. split.
  - apply Rinv_le_contravar; lra.
  - rewrite <- (Rinv_inv g). apply Rinv_le_contravar; [apply Rinv_0_lt_compat|]; lra.
Qed.

Lemma formed_error k v x p : formed k v x -> 0 <= p -> Rabs (x - v) <= error_bound k 0 (Rabs v) p.
Proof.
  intros H Hp. unfold error_bound, growth at 2. simpl. pose proof (formed_bound _ _ _ H). lra.
Qed.

Theorem any_tree (op : R -> R -> Prop) t y :
  (forall x z, op x z -> near x z) -> computed op t y ->
  Rabs (y - exact t) <= growth (roundings t) u * size t + growth (losses t) lost * most t * (1 + u) ^ roundings t.
Proof.
  intros Hop C. change (Rabs (y - exact t) <= error_bound (roundings t) (losses t) (size t) (most t)).
  induction C; cbn [exact size most roundings losses].
  - unfold error_bound, growth. simpl. destruct (at_least_1_ge r) as [H1 H2].
    destruct H as [-> | [-> H]].
    + rewrite Rminus_diag_eq by reflexivity. rewrite Rabs_R0.
      assert (0 <= lost * at_least_1 r) by (apply Rmult_le_pos; lra). lra.
    + rewrite Rminus_0_l, Rabs_Ropp.
      assert (0 <= lost * (at_least_1 r - 1)) by (apply Rmult_le_pos; lra). lra.
  - apply formed_error; auto. pose proof (at_least_1_ge v); lra.
  - replace (- x - - exact a) with (- (x - exact a)) by ring. now rewrite Rabs_Ropp.
  - pose proof (exact_le_size (Add a b)); pose proof (most_ge_1 a); pose proof (most_ge_1 b).
    eapply step; [assumption | lra | eauto |]. apply sum_step; auto using size_nonneg; lra.
  - pose proof (exact_le_size (Sub a b)); pose proof (most_ge_1 a); pose proof (most_ge_1 b).
    eapply step; [assumption | lra | eauto |].
    replace (x - y - (exact a - exact b)) with ((x + - y) - (exact a + - exact b)) by ring.
    apply sum_step; auto using size_nonneg; try lra.
    replace (- y - - exact b) with (- (y - exact b)) by ring. now rewrite Rabs_Ropp.
  - pose proof (exact_le_size (Mul a b)); pose proof (most_ge_1 (Mul a b)).
    eapply step; [assumption | assumption | eauto |]. apply product_step; auto using exact_le_size, size_le_most.
  - pose proof (exact_le_size (Fma a b c)); pose proof (most_ge_1 (Fma a b c)).
    pose proof (size_nonneg (Mul a b)); pose proof (most_ge_1 (Mul a b)); pose proof (most_ge_1 c).
    eapply step; [assumption | assumption | eauto |]. apply sum_step; auto using size_nonneg; try (simpl in *; lra).
    apply product_step; auto using exact_le_size, size_le_most.
  - pose proof (exact_le_size (Div a v k)); pose proof (most_ge_1 (Div a v k)).
    eapply step; [assumption | assumption | eauto |]. unfold Rdiv.
    replace (losses a) with (losses a + 0)%nat by lia.
    apply product_step; auto using exact_le_size, size_le_most; try (rewrite Rabs_inv; lra); try apply divisor_ge.
    rewrite <- Rabs_inv. apply formed_error; [now apply formed_inv | pose proof (divisor_ge v); lra].
  - pose proof (exact_le_size (Recip v k)); pose proof (most_ge_1 (Recip v k)).
    eapply step; [assumption | assumption | eauto |].
    rewrite <- Rabs_inv. apply formed_error; [now apply formed_inv | pose proof (divisor_ge v); lra].
  - pose proof (exact_le_size a); pose proof (most_ge_1 a). eapply step; eauto.
Qed.

End Execution.
