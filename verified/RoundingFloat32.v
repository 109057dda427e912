(* The formulas of specgrad.rounding and of the checker of certificates, for binary32: u = 2^-24, t = 2^-126.

   An execution's operations are those of RoundingFormat.v: to nearest with ties broken in any way, results kept in
   wider formats or stored, subnormal numbers kept or flushed. The theorems of the files before have growth(n, u) =
   (1 + u)^n - 1; here are the numbers that programs compute in its place, gamma and a slack of 2^-40, and that these
   are not smaller. Then the bounds of a region, of a node by itself, and against overflow, each as the code has it,
   named in verified/rounding.md, with u for rounding to nearest and 2u for rounding either way. *)
From Coq Require Import Reals Psatz Lia ZArith List Permutation.
From Flocq Require Import Core.
From Specgrad Require Import RoundingTree RoundingRegion RoundingFormat RoundingSums RoundingAlone.
Import ListNotations.
Open Scope R_scope.

Definition u32 : R := unit_roundoff 24.
Definition tiny32 : R := tiny (-149) 24.
Definition smallest32 : R := smallest (-149).
Definition operation32 : R -> R -> Prop := operation (-149) 24 True.
Definition operation32_kept : R -> R -> Prop := operation (-149) 24 False.
Definition directed32 : R -> R -> Prop := directed_operation (-149) 24 True.
Definition directed32_kept : R -> R -> Prop := directed_operation (-149) 24 False.

Lemma u32_value : u32 = / 2 ^ 24.
Proof. unfold u32, unit_roundoff. simpl. lra. Qed.
Lemma tiny32_value : tiny32 = / 2 ^ 126.
Proof. unfold tiny32, tiny. change (-149 + 24 - 1)%Z with (- (126))%Z. rewrite bpow_opp. f_equal. simpl. lra. Qed.
Lemma smallest32_value : smallest32 = / 2 ^ 149.
Proof. unfold smallest32, smallest. change (-149)%Z with (- (149))%Z. rewrite bpow_opp. f_equal. simpl. lra. Qed.

Lemma u32_range : 0 <= u32 <= / 2 ^ 24.
Proof. rewrite u32_value. split; [apply Rlt_le, Rinv_0_lt_compat, pow_lt; lra | lra]. Qed.
Lemma tiny32_range : 0 <= tiny32 <= 1.
Proof.
  rewrite tiny32_value. split; [apply Rlt_le, Rinv_0_lt_compat, pow_lt; lra|].
  rewrite <- Rinv_1. apply Rinv_le_contravar; [lra | apply pow_R1_Rle; lra].
Qed.

Lemma operation32_near x y : operation32 x y -> near u32 tiny32 x y.
Proof. apply operation_near_flushed; lia. Qed.
Lemma operation32_kept_near x y : operation32_kept x y -> near u32 (kept (-149) 24) x y.
Proof. apply operation_near; lia. Qed.
Lemma directed32_near x y : directed32 x y -> near (2 * u32) tiny32 x y.
Proof. apply directed_operation_near; lia. Qed.

Lemma directed32_kept_near x y : directed32_kept x y -> near (2 * u32) smallest32 x y.
Proof. apply directed_operation_near_kept; lia. Qed.

(* --- factors ------------------------------------------------------------------------------------------------------ *)

Definition gamma (n : nat) (u : R) : R := INR n * u / (1 - INR n * u).
Definition slack : R := 1 + / 2 ^ 40.  (* SLACK of the ledger, of which `long_slack` is a multiple *)

Lemma pow_gamma n u : 0 <= u -> (1 + u) ^ n * (1 - INR n * u) <= 1.
Proof.
  intros Hu. induction n; [simpl; lra|]. rewrite S_INR. simpl. pose proof (one_le_pow u Hu n). pose proof (pos_INR n).
  assert (0 <= (1 + u) ^ n * ((INR n + 1) * (u * u))) by (repeat apply Rmult_le_pos; lra). lra.
Qed.

Theorem growth_le_gamma n u : 0 <= u -> INR n * u < 1 -> growth n u <= gamma n u.
Proof.
  intros Hu Hn. unfold growth, gamma. pose proof (pow_gamma n u Hu).
  apply Rmult_le_reg_r with (1 - INR n * u); [lra|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra.
Qed.

(* What c operations lose, to first order. *)
Theorem growth_linear c lost : 0 <= lost -> INR c * lost <= / 2 ^ 41 -> growth c lost <= slack * (INR c * lost).
Proof.
  intros Hl Hc. assert (H41 : / 2 ^ 41 = / 2 * / 2 ^ 40) by (simpl; lra). assert (H40 : 0 < / 2 ^ 40 <= / 4).
  { split; [apply Rinv_0_lt_compat, pow_lt; lra|]. replace 4 with (2 ^ 2) by ring.
    apply Rinv_le_contravar; [lra | apply Rle_pow; [lra | lia]]. }
  assert (H0 : 0 <= INR c * lost) by (apply Rmult_le_pos; auto using pos_INR).
  eapply Rle_trans; [apply growth_le_gamma; lra|]. unfold gamma, slack. set (s := INR c * lost) in *.
  apply Rmult_le_reg_r with (1 - s); [lra|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra.
  set (e := / 2 ^ 40) in *. assert (0 <= s * (e - s - e * s)) by (apply Rmult_le_pos; nra). lra.
Qed.

Lemma pow_le_sqrt3 n u : 0 <= u -> INR n * u <= / 2 -> (1 + u) ^ n <= 7 / 4.
Proof.
  intros Hu Hn. assert (He : (1 + u) ^ n <= exp (/ 2)).
  { apply Rle_trans with (exp (INR n * u)).
    - clear Hn. induction n; [simpl; rewrite Rmult_0_l, exp_0; lra|]. rewrite S_INR.
      replace ((INR n + 1) * u) with (u + INR n * u) by ring. rewrite exp_plus. simpl.
      apply Rmult_le_compat; [lra | pose proof (one_le_pow u Hu n); lra | apply exp_ineq1_le | assumption].
    - destruct (Rle_lt_or_eq_dec _ _ Hn) as [L | ->]; [apply Rlt_le, exp_increasing, L | lra]. }
  assert (Hs : exp (/ 2) * exp (/ 2) <= 3) by (rewrite <- exp_plus; replace (/ 2 + / 2) with 1 by lra; apply exp_le_3).
  pose proof (exp_pos (/ 2)). nra.
Qed.

(* --- regions ------------------------------------------------------------------------------------------------------ *)

(* specgrad.rounding.linear, `rounded` with `underflow_loss`: growth(R, u)*size + (2*R + 1)*tiny*most*(1 + u)^R, times
   slack. *)
Theorem float32_region n c y : executed u32 tiny32 operation32 n c y -> INR (2 * n + 1) * tiny32 <= / 2 ^ 41 ->
  Rabs (y - cell_exact c) <= growth n u32 * cell_size c +
    slack * (INR (2 * n + 1) * tiny32 * cell_most c * (1 + u32) ^ n).
Proof.
  intros E Hn. pose proof u32_range as [Hu _]. pose proof tiny32_range as [Ht _].
  eapply Rle_trans; [apply (fused u32 tiny32 Hu tiny32_range operation32 operation32_near n c y E)|].
  apply Rplus_le_compat_l. replace (slack * _) with (slack * (INR (2 * n + 1) * tiny32) * cell_most c * (1 + u32) ^ n)
    by ring.
  destruct E as [t [_ [E _]]]. apply expands_equal in E as [_ [_ <-]]. pose proof (most_ge_1 t).
  pose proof (one_le_pow u32 Hu n). repeat apply Rmult_le_compat_r; try lra. now apply growth_linear.
Qed.

(* The checker: gamma_R*M + 2*(2*R + 1)*t*P while R*u <= 1/2. For nearest and for any rounding. *)
Theorem certificate_region u (op : R -> R -> Prop) n c y :
  0 <= u -> (forall x z, op x z -> near u tiny32 x z) -> executed u tiny32 op n c y ->
  INR n * u <= / 2 -> INR (2 * n + 1) * tiny32 <= / 2 ^ 41 ->
  Rabs (y - cell_exact c) <= gamma n u * cell_size c + 2 * INR (2 * n + 1) * tiny32 * cell_most c.
Proof.
  intros Hu Hop E Hn Hc. pose proof tiny32_range as [Ht _].
  eapply Rle_trans; [apply (fused u tiny32 Hu tiny32_range op Hop n c y E)|].
  destruct E as [t [_ [E _]]]. apply expands_equal in E as [_ [<- <-]]. pose proof (most_ge_1 t).
  pose proof (size_nonneg t).
  apply Rplus_le_compat.
  - apply Rmult_le_compat_r; [assumption | apply growth_le_gamma; lra].
  - pose proof (growth_linear _ _ Ht Hc) as Hg. pose proof (pow_le_sqrt3 n u Hu Hn) as Hp.
    pose proof (one_le_pow u Hu n). pose proof (growth_nonneg tiny32 Ht (2 * n + 1)).
    set (s := INR (2 * n + 1) * tiny32) in *.
    assert (Hk : slack <= 8 / 7).
    { unfold slack. assert (/ 2 ^ 40 <= / 2 ^ 3) by
        (apply Rinv_le_contravar; [apply pow_lt; lra | apply Rle_pow; [lra | lia]]).
      replace (/ 2 ^ 3) with (/ 8) in * by (f_equal; ring). lra. }
    assert (Hs : 0 <= s) by (apply Rmult_le_pos; auto using pos_INR).
    replace (2 * INR (2 * n + 1) * tiny32 * most t) with (8 / 7 * s * most t * (7 / 4)) by (unfold s; field).
    apply Rmult_le_compat; [apply Rmult_le_pos; lra | lra | | assumption].
    apply Rmult_le_compat_r; [lra|]. eapply Rle_trans; [exact Hg|]. apply Rmult_le_compat_r; assumption.
Qed.

(* P*(1 + gamma_R) below 2^128: no operation of the execution overflows. *)
Theorem certificate_no_overflow u (op : R -> R -> Prop) n c y b :
  0 <= u -> (forall x z, op x z -> near u tiny32 x z) -> executed u tiny32 op n c y ->
  INR n * u < 1 -> cell_most c * (1 + gamma n u) <= b ->
  executed u tiny32 (fun x z => op x z /\ Rabs z <= b) n c y.
Proof.
  intros Hu Hop E Hn Hb. apply fused_no_overflow; auto using tiny32_range.
  eapply Rle_trans; [|exact Hb]. destruct E as [t [_ [E _]]]. apply expands_equal in E as [_ [_ <-]].
  apply Rmult_le_compat_l; [pose proof (most_ge_1 t); lra|]. pose proof (growth_le_gamma n u Hu Hn). unfold growth in *.
  lra.
Qed.

(* --- sums in any order: conv, conv_transpose, linear -------------------------------------------------------------- *)

(* The terms of a sum in the order of a tree: products w*x, and additive terms. *)
Inductive dot : expansion -> tree -> Prop :=
  | dot_product w x : dot [[Times w; Times x]] (Mul (Leaf w) (Leaf x))
  | dot_term b : dot [[Times b]] (Leaf b)
  | dot_add c d s t : dot c s -> dot d t -> dot (c ++ d) (Add s t)
  | dot_fma c w x t : dot c t -> dot ([Times w; Times x] :: c) (Fma (Leaf w) (Leaf x) t).

Lemma dot_expands c t : dot c t -> expand t = c.
Proof. intros H; induction H; simpl; rewrite ?IHdot, ?IHdot1, ?IHdot2; reflexivity. Qed.
Lemma dot_alone c t : dot c t -> alone t.
Proof. intros H; induction H; now constructor. Qed.
Lemma dot_sum c t : dot c t -> sum_of 0 (length c) t.
Proof.
  intros H; induction H; simpl; rewrite ?app_length; try (constructor; simpl; auto; lia).
Qed.
Lemma dot_roundings c t : dot c t -> (roundings t <= length c)%nat.
Proof. intros H. apply dot_sum in H. now apply sum_roundings in H. Qed.
Lemma dot_operations c t : dot c t -> (1 <= length c /\ operations t <= 2 * length c - 1)%nat.
Proof. intros H; induction H; simpl; rewrite ?app_length; lia. Qed.
Lemma dot_widest c t : dot c t -> widest t = size t.
Proof. intros H; induction H; simpl; rewrite ?IHdot, ?IHdot1, ?IHdot2; reflexivity. Qed.

Section AnyOrder.
Variables (op : R -> R -> Prop) (u lost : R).
Hypothesis Hu : 0 <= u.
Hypothesis lost_nonneg : 0 <= lost.
Hypothesis op_near : forall x z, op x z -> near u lost x z.

Lemma any_order c c' t y : dot c' t -> Permutation c' c -> computed u 0 op t y ->
  Rabs (y - cell_exact c) <= growth (length c) u * cell_size c + INR (2 * length c - 1) * lost * (1 + u) ^ length c.
Proof.
  intros D P C. rewrite <- (Permutation_length P). unfold cell_exact, cell_size.
  rewrite <- !(total_permutation _ _ _ P), <- (dot_expands _ _ D).
  change (Rabs (y - cell_exact (expand t)) <= growth (length (expand t)) u * cell_size (expand t)
    + INR (2 * length (expand t) - 1) * lost * (1 + u) ^ length (expand t)).
  rewrite expand_exact, expand_size. rewrite (dot_expands _ _ D).
  destruct (dot_operations _ _ D) as [_ Ho]. pose proof (dot_roundings _ _ D) as Hr.
  eapply Rle_trans; [apply (alone_error u lost Hu lost_nonneg op op_near); eauto using dot_alone|].
  apply Rplus_le_compat.
  - apply Rmult_le_compat_r; [apply size_nonneg | now apply growth_mono].
  - apply Rmult_le_compat; [apply Rmult_le_pos; auto using pos_INR | | | now apply pow_le_pow].
    + pose proof (one_le_pow u Hu (roundings t)); lra.
    + apply Rmult_le_compat_r; [assumption | now apply le_INR].
Qed.

(* (1 + u)^n * size below the largest number, up to what underflow can add: no overflow, in any order. *)
Lemma any_order_no_overflow c c' t y b : dot c' t -> Permutation c' c -> computed u 0 op t y ->
  (cell_size c + INR (2 * length c - 1) * lost) * (1 + u) ^ length c <= b ->
  computed u 0 (fun x z => op x z /\ Rabs z <= b) t y.
Proof.
  intros D P C Hb. apply (alone_no_overflow u lost Hu lost_nonneg op op_near); eauto using dot_alone.
  revert Hb. rewrite <- (Permutation_length P). unfold cell_size. rewrite <- (total_permutation _ _ _ P).
  rewrite <- (dot_expands _ _ D) at 1. fold (cell_size (expand t)). rewrite expand_size, <- (dot_widest _ _ D).
  destruct (dot_operations _ _ D) as [_ Ho]. pose proof (dot_roundings _ _ D) as Hr.
  apply reached_mono; auto using Rle_refl. apply widest_nonneg; eauto using dot_alone.
Qed.
End AnyOrder.

(* `underflow` of specgrad.rounding.linear: (n + 1)*2*lost*(1 + u)^n, lost = tiny where numbers may be flushed. *)
Lemma lossy_sum (op : R -> R -> Prop) u lost c c' t y : 0 <= u -> 0 <= lost ->
  (forall x z, op x z -> near u lost x z) ->
  dot c' t -> Permutation c' c -> computed u 0 op t y ->
  Rabs (y - cell_exact c) <= growth (length c) u * cell_size c + INR (length c + 1) * (2 * lost) * (1 + u) ^ length c.
Proof.
  intros Hu Hl Hop D P C. eapply Rle_trans; [apply (any_order op u lost Hu Hl Hop c c' t y D P C)|].
  apply Rplus_le_compat_l. apply Rmult_le_compat_r; [pose proof (one_le_pow u Hu (length c)); lra|].
  rewrite <- Rmult_assoc. apply Rmult_le_compat_r; [assumption|].
  replace (INR (length c + 1) * 2) with (INR (2 * (length c + 1))) by (rewrite mult_INR; simpl; ring). apply le_INR.
  lia.
Qed.

Theorem float32_sum c c' t y : dot c' t -> Permutation c' c -> computed u32 0 operation32 t y ->
  Rabs (y - cell_exact c) <=
    growth (length c) u32 * cell_size c + INR (length c + 1) * (2 * tiny32) * (1 + u32) ^ length c.
Proof. apply lossy_sum; [apply u32_range | apply tiny32_range | apply operation32_near]. Qed.

(* Rounded either way. *)
Theorem float32_sum_directed c c' t y : dot c' t -> Permutation c' c -> computed (2 * u32) 0 directed32 t y ->
  Rabs (y - cell_exact c) <=
    growth (length c) (2 * u32) * cell_size c + INR (length c + 1) * (2 * tiny32) * (1 + 2 * u32) ^ length c.
Proof. apply lossy_sum; [pose proof u32_range; lra | apply tiny32_range | apply directed32_near]. Qed.

Theorem float32_sum_directed_kept c c' t y : dot c' t -> Permutation c' c -> computed (2 * u32) 0 directed32_kept t y ->
  Rabs (y - cell_exact c) <=
    growth (length c) (2 * u32) * cell_size c + INR (length c + 1) * (2 * smallest32) * (1 + 2 * u32) ^ length c.
Proof.
  apply lossy_sum; [pose proof u32_range; lra | apply Rlt_le, smallest_pos | apply directed32_kept_near].
Qed.

(* To nearest, subnormal numbers kept: (n + 1)*smallest*(1 + u)^n, for up to 2^24 terms. *)
Theorem float32_sum_kept c c' t y : dot c' t -> Permutation c' c -> computed u32 0 operation32_kept t y ->
  INR (length c) * u32 <= 1 ->
  Rabs (y - cell_exact c) <=
    growth (length c) u32 * cell_size c + INR (length c + 1) * smallest32 * (1 + u32) ^ length c.
Proof.
  intros D P C Hn. pose proof u32_range as [Hu _]. pose proof (smallest_pos (-149)) as Hs.
  assert (Hk : 0 <= kept (-149) 24) by (pose proof (kept_ge (-149) 24); lra).
  eapply Rle_trans; [apply (any_order operation32_kept u32 _ Hu Hk operation32_kept_near c c' t y D P C)|].
  apply Rplus_le_compat_l. apply Rmult_le_compat_r; [pose proof (one_le_pow u32 Hu (length c)); lra|].
  unfold kept. fold u32. fold smallest32 in *. rewrite plus_INR. simpl (INR 1).
  assert (INR (2 * length c - 1) <= 2 * INR (length c)).
  { replace (2 * INR (length c)) with (INR (2 * length c)) by (rewrite mult_INR; simpl; ring). apply le_INR. lia. }
  pose proof (pos_INR (length c)). pose proof (pos_INR (2 * length c - 1)).
  replace (INR (2 * length c - 1) * (/ 2 * smallest32 * (1 + u32)))
    with (INR (2 * length c - 1) * (1 + u32) / 2 * smallest32) by field.
  apply Rmult_le_compat_r; [lra|]. nra.
Qed.
