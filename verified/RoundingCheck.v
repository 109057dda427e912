(* What the checker calls a rounding (CheckTrees.v) is what IEEE operations do: to nearest or either way, kept in wider
   formats or stored, flushed or not. *)
From Coq Require Import Reals Psatz Lia ZArith.
From Flocq Require Import Core.
From Specgrad Require Import RoundingTree RoundingFormat RoundingFloat32.
From Specgrad Require CheckTrees.
Open Scope R_scope.

Lemma near_split u lost x y : 0 <= u -> 0 <= lost -> near u lost x y ->
  exists d e, Rabs d <= u /\ Rabs e <= lost /\ y = x * (1 + d) + e.
Proof.
  intros Hu Hl [N | [N _]].
  - destruct (Req_dec x 0) as [-> | Hx].
    + rewrite Rabs_R0, Rmult_0_r, Rminus_0_r in N. exists 0, 0. rewrite Rabs_R0. repeat split; try lra.
      pose proof (Rabs_pos y). destruct (Req_dec y 0) as [-> | Hy]; [ring | pose proof (Rabs_pos_lt y Hy); lra].
    + exists ((y - x) / x), 0. rewrite Rabs_R0. repeat split; try lra; [|field; exact Hx].
      unfold Rdiv. rewrite Rabs_mult, Rabs_inv. pose proof (Rabs_pos_lt x Hx).
      apply Rmult_le_reg_r with (Rabs x); [assumption|]. rewrite Rmult_assoc, Rinv_l by lra. lra.
  - exists 0, (y - x). rewrite Rabs_R0. repeat split; try lra.
Qed.

Theorem operation32_evals a x y m :
  CheckTrees.evals a x m -> operation32 x y -> CheckTrees.evals (CheckTrees.Rounded u32 a) y (Rmax m (Rabs x)).
Proof.
  intros E O. destruct (near_split u32 tiny32 x y (proj1 u32_range) (proj1 tiny32_range) (operation32_near _ _ O))
    as [d [e [Hd [He ->]]]]. now constructor.
Qed.

Theorem directed32_evals a x y m :
  CheckTrees.evals a x m -> directed32 x y -> CheckTrees.evals (CheckTrees.Rounded (2 * u32) a) y (Rmax m (Rabs x)).
Proof.
  intros E O. pose proof (proj1 u32_range).
  destruct (near_split (2 * u32) tiny32 x y ltac:(lra) (proj1 tiny32_range) (directed32_near _ _ O))
    as [d [e [Hd [He ->]]]]. now constructor.
Qed.
