(* Averages, batch normalisation folded into a convolution, and residual additions, in binary32.

   These are the operators whose radius is not that of a plain sum. An average may divide by its divisor, by one
   divisor after the other, or multiply by a rounded reciprocal, before the sum or behind it: the theorem holds of
   all four, with k + 1 roundings for k cells. A batch normalisation that is folded into a convolution has its scale
   in every weight, formed with k roundings, and its shift in the bias: k + 2 + n. A residual addition is off
   relative to its result, which is sharper than relative to what is added. *)
From Coq Require Import Reals Psatz Lia ZArith List Permutation.
From Flocq Require Import Core.
From Specgrad Require Import RoundingTree RoundingRegion RoundingFormat RoundingSums RoundingAlone RoundingFloat32.
Import ListNotations.
Open Scope R_scope.

Fixpoint sum (l : list R) : R := match l with [] => 0 | x :: l' => x + sum l' end.
Lemma sum_app l m : sum (l ++ m) = sum l + sum m.
Proof. induction l; simpl; lra. Qed.

(* --- avg_pool ----------------------------------------------------------------------------------------------------- *)

(* xs added up in some order. *)
Inductive added : list R -> tree -> Prop :=
  | added_cell x : added [x] (Leaf x)
  | added_both l m s t : added l s -> added m t -> added (l ++ m) (Add s t).

(* Each of xs times the rounded reciprocal of v, added up in some order, with or without FMA. *)
Inductive shares (v : R) : list R -> tree -> Prop :=
  | shares_cell x : shares v [x] (Mul (Leaf x) (Const (/ v) 1))
  | shares_both l m s t : shares v l s -> shares v m t -> shares v (l ++ m) (Add s t)
  | shares_fma x l t : shares v l t -> shares v (x :: l) (Fma (Leaf x) (Const (/ v) 1) t).

(* The average of xs over v: divided by v, or by one divisor after the other, or times the reciprocal. *)
Inductive average (v : R) (xs : list R) : tree -> Prop :=
  | average_quotient t : added xs t -> average v xs (Div t v 0)
  | average_axes t p q : added xs t -> v = p * q -> 1 <= Rabs p -> 1 <= Rabs q -> average v xs (Div (Div t p 0) q 0)
  | average_product t : added xs t -> average v xs (Mul t (Const (/ v) 1))
  | average_shares t : shares v xs t -> average v xs t.

Lemma added_facts l t : added l t -> exact t = sum l /\ size t = sum (map Rabs l) /\ alone t /\
  (1 <= length l /\ roundings t <= length l - 1 /\ operations t <= length l - 1)%nat /\ widest t = sum (map Rabs l).
Proof.
  intros H; induction H as [x | l m s t _ IHs _ IHt]; simpl.
  - repeat split; try lra; try lia. constructor.
  - destruct IHs as [-> [-> [? [? ->]]]], IHt as [-> [-> [? [? ->]]]]. rewrite map_app, !sum_app, app_length.
    repeat split; try lia. now constructor.
Qed.

Lemma shares_facts v l t : 1 <= Rabs v -> shares v l t -> exact t = sum l / v /\ size t = sum (map Rabs l) / Rabs v /\
  alone t /\
  (1 <= length l /\ roundings t <= length l + 1 /\ operations t <= 2 * length l - 1)%nat /\ widest t = sum (map Rabs l).
Proof.
  intros Hv. assert (Hi : Rabs (/ v) <= 1) by (rewrite Rabs_inv, <- Rinv_1; apply Rinv_le_contravar; lra).
  intros H; induction H as [x | l m s t _ IHs _ IHt | x l t _ IHt]; simpl; unfold Rdiv.
  - rewrite Rabs_inv. repeat split; try ring; try lia. constructor; [constructor | exact Hi].
  - destruct IHs as [-> [-> [? [? ->]]]], IHt as [-> [-> [? [? ->]]]]. rewrite map_app, !sum_app, app_length.
    repeat split; try lia; try (unfold Rdiv; ring). now constructor.
  - destruct IHt as [-> [-> [? [? ->]]]]. rewrite Rabs_inv. repeat split; try lia; try (unfold Rdiv; ring).
    + constructor; auto. constructor.
    + destruct (roundings t); lia.
Qed.

Lemma average_facts v xs t : 1 <= Rabs v -> average v xs t -> exact t = sum xs / v /\
  size t = sum (map Rabs xs) / Rabs v /\
  alone t /\ (roundings t <= length xs + 1 /\ operations t <= 2 * (length xs + 2))%nat /\ widest t = sum (map Rabs xs).
Proof.
  intros Hv H. assert (Hi : Rabs (/ v) <= 1) by (rewrite Rabs_inv, <- Rinv_1; apply Rinv_le_contravar; lra).
  destruct H as [t A | t p q A -> Hp Hq | t A | t A].
  - destruct (added_facts _ _ A) as [E [S [L [N W]]]]. simpl. rewrite E, S, W. repeat split; try lia. now constructor.
  - destruct (added_facts _ _ A) as [E [S [L [N W]]]]. simpl. rewrite E, S, W. unfold Rdiv.
    rewrite Rabs_mult, !Rinv_mult.
    repeat split; try lia; try ring. apply alone_div; [now apply alone_div | assumption].
  - destruct (added_facts _ _ A) as [E [S [L [N W]]]]. simpl. rewrite E, S, W, Rabs_inv. unfold Rdiv.
    repeat split; try lia. now constructor.
  - destruct (shares_facts _ _ _ Hv A) as [E [S [L [N W]]]]. repeat split; auto; lia.
Qed.

Section Average.
Variables (op : R -> R -> Prop) (u lost : R).
Hypothesis u_nonneg : 0 <= u.
Hypothesis lost_nonneg : 0 <= lost.
Hypothesis op_near : forall x z, op x z -> near u lost x z.

Lemma average_error v xs t y : 1 <= Rabs v -> average v xs t -> computed u 0 op t y ->
  let n := (length xs + 1)%nat in
  Rabs (y - sum xs / v) <= growth n u * (sum (map Rabs xs) / Rabs v) + INR (2 * (n + 1)) * lost * (1 + u) ^ n.
Proof.
  intros Hv A C n. destruct (average_facts _ _ _ Hv A) as [E [S [L [[N O] _]]]]. rewrite <- E, <- S.
  eapply Rle_trans; [apply (alone_error u lost u_nonneg lost_nonneg op op_near t y L C)|].
  apply Rplus_le_compat.
  - apply Rmult_le_compat_r; [apply size_nonneg | now apply growth_mono].
  - apply Rmult_le_compat; [apply Rmult_le_pos; auto using pos_INR | | | now apply pow_le_pow].
    + pose proof (one_le_pow u u_nonneg (roundings t)); lra.
    + apply Rmult_le_compat_r; [assumption|]. apply le_INR. unfold n. lia.
Qed.

(* No partial result above the sum of absolute values, undivided: `widening`. *)
Theorem average_no_overflow v xs t y b : 1 <= Rabs v -> average v xs t -> computed u 0 op t y ->
  let n := (length xs + 1)%nat in
  (sum (map Rabs xs) + INR (2 * (n + 1)) * lost) * (1 + u) ^ n <= b ->
  computed u 0 (fun x z => op x z /\ Rabs z <= b) t y.
Proof.
  intros Hv A C n Hb. destruct (average_facts _ _ _ Hv A) as [_ [_ [L [[N O] W]]]].
  apply (alone_no_overflow u lost u_nonneg lost_nonneg op op_near); auto.
  unfold reached. eapply reached_mono; [exact u_nonneg | exact lost_nonneg | now apply widest_nonneg | | | |exact Hb];
    try lia.
  rewrite W. lra.
Qed.
End Average.

Lemma twice n : INR (2 * n) = INR n * 2.
Proof. rewrite mult_INR. simpl. ring. Qed.

(* k cells: growth(k + 1, u) of the average of absolute values, and (k + 2)*2*tiny*(1 + u)^(k + 1). *)
Theorem float32_average v xs t y : 1 <= Rabs v -> average v xs t -> computed u32 0 operation32 t y ->
  let n := (length xs + 1)%nat in
  Rabs (y - sum xs / v) <= growth n u32 * (sum (map Rabs xs) / Rabs v) + INR (n + 1) * (2 * tiny32) * (1 + u32) ^ n.
Proof.
  intros Hv A C n. rewrite <- (Rmult_assoc (INR (n + 1))), <- twice.
  exact (average_error _ _ _ (proj1 u32_range) (proj1 tiny32_range) operation32_near v xs t y Hv A C).
Qed.

(* Rounded either way. *)
Theorem float32_average_directed v xs t y : 1 <= Rabs v -> average v xs t -> computed (2 * u32) 0 directed32 t y ->
  let n := (length xs + 1)%nat in
  Rabs (y - sum xs / v) <=
    growth n (2 * u32) * (sum (map Rabs xs) / Rabs v) + INR (n + 1) * (2 * tiny32) * (1 + 2 * u32) ^ n.
Proof.
  intros Hv A C n. rewrite <- (Rmult_assoc (INR (n + 1))), <- twice.
  assert (Hu : 0 <= 2 * u32) by (pose proof u32_range; lra).
  exact (average_error _ _ _ Hu (proj1 tiny32_range) directed32_near v xs t y Hv A C).
Qed.

(* Where the reciprocal of the divisor is normal, it is a constant formed with one rounding. *)
Theorem float32_reciprocal v choice : tiny32 <= Rabs (/ v) -> formed u32 1 (/ v) (nearest (-149) 24 choice (/ v)).
Proof. intros H. apply (formed_operation (-149) 24); try lia. exact H. Qed.

(* --- batch_norm --------------------------------------------------------------------------------------------------- *)

(* A convolution with the normalisation folded into its weights, s formed with k roundings: R = (k + 2) + n, n the
   products and the one constant. On absolute values of every factor, not of the folded weight. *)
Theorem float32_folded_batch_norm s k n t y : folded_batch_norm s k n t -> computed u32 tiny32 operation32 t y ->
  let r := (k + 2 + n)%nat in
  Rabs (y - exact t) <= growth r u32 * size t + growth (2 * r + 1) tiny32 * most t * (1 + u32) ^ r.
Proof.
  intros F C r. pose proof (folded_batch_norm_roundings _ _ _ _ F) as N. pose proof u32_range as [Hu _].
  rewrite <- expand_exact, <- expand_size, <- expand_most.
  apply (fused u32 tiny32 Hu tiny32_range operation32 operation32_near).
  exists t. split; [exact C|]. split; [|exact N]. exists (expand t). split; [reflexivity|].
  induction (expand t); constructor; auto. split; reflexivity.
Qed.

(* --- add ---------------------------------------------------------------------------------------------------------- *)

(* A sum of two values is off relative to itself. *)
Theorem float32_add a b y : operation32 (a + b) y -> Rabs (y - (a + b)) <= u32 * Rabs (a + b) + tiny32.
Proof.
  intros O. pose proof tiny32_range. pose proof u32_range. destruct (operation32_near _ _ O) as [N | [N _]]; [lra|].
  assert (0 <= u32 * Rabs (a + b)) by (apply Rmult_le_pos; [lra | apply Rabs_pos]). lra.
Qed.
