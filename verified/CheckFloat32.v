(* What IEEE arithmetic does is one of the roundings that the checker's class allows: to nearest, ties in any way, or
   (with twice the unit) either way; in float32 or wider, stored or not; subnormal numbers kept or flushed.

   The checker's class has roundings v * (1 + d) + e with d at most a unit and e at most 2^-126, and no exponents.
   Here `operation32` of RoundingFloat32.v, which is defined with Flocq's formats, is shown to be one of these:
   `float32_rounds` with 2^-24, `float32_rounds_any` with 2^-23, and a number that is flushed where it is read with
   no unit at all. Rounding with unbounded exponents is rounding to float32 as long as nothing overflows, which is
   what `check_sound` proves besides. *)
From Coq Require Import Reals Lra.
From Flocq Require Import Core.
From Specgrad Require Import RoundingTree RoundingFormat RoundingFloat32 CheckNumber CheckTrees.
Open Scope R_scope.

Lemma near_rounds unit a x m y : 0 <= unit -> near unit least_normal x y -> evals a x m ->
  evals (Rounded unit a) y (Rmax m (Rabs x)).
Proof.
  intros U [N | [N _]] E.
  - destruct (Req_dec x 0) as [Z|Z].
    + assert (y = x * (1 + 0) + 0) as ->.
      { rewrite Z in *. rewrite Rabs_R0, Rmult_0_r, Rminus_0_r in
          N. pose proof (Rabs_pos y). destruct (Req_dec y 0) as [->|Y]; [ring|].
        apply Rabs_no_R0 in Y. lra. }
      constructor; auto; rewrite Rabs_R0; [auto | left; apply least_normal_pos].
    + replace y with (x * (1 + (y - x) / x) + 0) by (field; auto). constructor; auto.
      * unfold Rdiv. rewrite Rabs_mult, Rabs_inv. apply Rmult_le_reg_r with (Rabs x); [now apply Rabs_pos_lt|].
        rewrite Rmult_assoc, Rinv_l, Rmult_1_r by now apply Rabs_no_R0. exact N.
      * rewrite Rabs_R0. left; apply least_normal_pos.
  - replace y with (x * (1 + 0) + (y - x)) by ring. constructor; auto. now rewrite Rabs_R0.
Qed.

Theorem float32_rounds a x m y : operation32 x y -> evals a x m ->
  evals (Rounded (real (power (-24))) a) y (Rmax m (Rabs x)).
Proof.
  intros O. apply operation32_near in O. rewrite real_power. apply near_rounds; [left; apply bpow_gt_0 | exact O].
Qed.
Theorem float32_rounds_any a x m y : directed32 x y -> evals a x m ->
  evals (Rounded (real (power (-23))) a) y (Rmax m (Rabs x)).
Proof.
  intros O. apply directed32_near in O. rewrite real_power. apply near_rounds; [left; apply bpow_gt_0|].
  replace (bpow radix2 (-23)) with (2 * u32); [exact O|]. unfold u32, unit_roundoff. change 2 with (bpow radix2 1) at 1.
  now rewrite <- bpow_plus.
Qed.
(* Numbers that are read and flushed, or formed beforehand and rounded once. *)
Theorem flushed_reads a x m : evals a x m -> Rabs x <= least_normal -> evals (Rounded 0 a) 0 (Rmax m (Rabs x)).
Proof.
  intros E T. replace 0 with (x * (1 + 0) + - x) at 2 by ring.
  constructor; auto; [rewrite Rabs_R0; lra | now rewrite Rabs_Ropp].
Qed.
