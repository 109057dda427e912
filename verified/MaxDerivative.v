(** The tangent of max_pool is its derivative exactly where all taps that tie for the greatest change alike: so
    wherever one tap is greatest, and at a tie only for such changes.

    Over dual numbers that compare their values alone, max_pool has its tangent as coefficient everywhere (Dual.v),
    which sounds like a derivative and at a tie is none: of max(0, h) at h = 0 the left slope is 0 and the right
    slope 1. Here the derivative is the limit. One direction: taps below the winner stay below for small steps, and
    those that tie move along with it, so the value is the winner's line. The other: a tap that ties and moves
    otherwise lifts the maximum above that line, on one side. *)
From Coq Require Import ZArith Reals List Lra.
From Coquelicot Require Import Coquelicot.
From Specgrad Require Import Numbers Relation Window Readers Conv AvgPool MaxPool SmoothMax SmoothDerivative.
Import ListNotations.
Open Scope R_scope.

(** The value of a maximum after a step h. *)
Definition pooled w x dx o h := max_pool reals less_R w (moved x dx h) o.

Lemma pooled_least w x dx o h j : In j (cells w o) -> moved x dx h j <= pooled w x dx o h.
Proof.
  intros J. destruct (max_pool_greatest reals less_R reals_ordered w (moved x dx h) o) as (i & _ & _ & _ & G).
  - intros E. rewrite E in J. destruct J.
  - apply not_less_R. now apply G.
Qed.
Lemma pooled_is_a_tap w x dx o h : cells w o <> [] -> exists k, In k (cells w o) /\ pooled w x dx o h = moved x dx h k.
Proof. intros E. destruct (max_pool_greatest reals less_R reals_ordered w (moved x dx h) o E) as (k & _ & K & V & _).
eauto. Qed.
Lemma pooled_at_0 w x dx o i : winner less_R w x o = Some i -> pooled w x dx o 0 = x i.
Proof.
  intros W. pose proof (first_winner_in less_R x _ _ reals_ordered W) as I.
  assert (L : moved x dx 0 i <= pooled w x dx o 0) by now apply pooled_least. unfold moved in L.
  destruct (pooled_is_a_tap w x dx o 0) as (k & K & V); [intros E; rewrite E in I; destruct I|].
  pose proof (first_winner_greatest less_R x _ _ k reals_ordered W K) as G. apply not_less_R in G.
  rewrite V in *. unfold moved in *. lra.
Qed.

(** What is positive stays so for small steps; of finitely many taps at once. *)
Lemma stays_positive a b : 0 < a -> locally 0 (fun h => 0 < a + h * b).
Proof.
  intros A. pose proof (Rabs_pos b) as B. assert (P : 0 < a / (Rabs b + 1)) by (apply Rdiv_lt_0_compat; lra).
  exists (mkposreal _ P). intros h H. change (Rabs (h - 0) < a / (Rabs b + 1)) in H. rewrite Rminus_0_r in H.
  apply (Rmult_lt_compat_r (Rabs b + 1)) in H; [|lra].
  replace (a / (Rabs b + 1) * (Rabs b + 1)) with a in H by (field; lra).
  pose proof (Rle_abs (- (h * b))) as N. rewrite Rabs_Ropp, Rabs_mult in N. pose proof (Rabs_pos h). nra.
Qed.
Lemma for_all_taps {A} (l : list A) (P : A -> R -> Prop) :
  (forall a, In a l -> locally 0 (P a)) -> locally 0 (fun h => forall a, In a l -> P a h).
Proof.
  induction l as [|a l IH]; intros H.
  - apply filter_forall. intros h b [].
  - assert (L : locally 0 (fun h => P a h /\ forall b, In b l -> P b h)).
    { apply filter_and; [apply H; now left | apply IH; intros; apply H; now right]. }
    revert L. apply filter_imp. intros h [X Y] b [<-|B]; auto.
Qed.

Lemma tied_alike_derivative w x dx o i : winner less_R w x o = Some i ->
  (forall j, In j (cells w o) -> x j = x i -> dx j = dx i) -> is_derive (pooled w x dx o) 0 (dx i).
Proof.
  intros W T. pose proof (first_winner_in less_R x _ _ reals_ordered W) as I.
  apply is_derive_ext_loc with (fun h => x i + h * dx i); [|auto_derive; [exact Logic.I | ring]].
  assert (L : locally 0 (fun h => forall j, In j (cells w o) -> x j < x i -> moved x dx h j < moved x dx h i)).
  { apply for_all_taps. intros j J. destruct (Rlt_dec (x j) (x i)) as [S|S];
      [|apply filter_forall; intros h C; contradiction].
    generalize (stays_positive (x i - x j) (dx i - dx j) ltac:(lra)). apply filter_imp. intros h P _. unfold moved. lra.
    }
  revert L. apply filter_imp. intros h H. pose proof (pooled_least w x dx o h i I) as Least.
  destruct (pooled_is_a_tap w x dx o h) as (k & K & V); [intros E; rewrite E in I; destruct I|].
  pose proof (first_winner_greatest less_R x _ _ k reals_ordered W K) as G. apply not_less_R in G.
  destruct (Rle_lt_or_eq_dec _ _ G) as [S|S].
  - specialize (H k K S). rewrite V in Least. lra.
  - rewrite V. unfold moved. rewrite S, (T k K S). reflexivity.
Qed.
Lemma tied_unlike_no_derivative w x dx o i j : winner less_R w x o = Some i -> In j (cells w o) -> x j = x i ->
  dx j <> dx i ->
  ~ is_derive (pooled w x dx o) 0 (dx i).
Proof.
  intros W J E N D. apply is_derive_Reals in D. set (gap := dx j - dx i).
  assert (P : 0 < Rabs gap) by (apply Rabs_pos_lt; unfold gap; lra).
  destruct (D (Rabs gap) P) as [e H]. pose proof (cond_pos e) as Pe.
  assert (G : exists h, h <> 0 /\ Rabs h < e /\ 0 < h * gap).
  { destruct (Rlt_dec 0 gap) as [S|S].
    - exists (e / 2). rewrite Rabs_pos_eq by lra. repeat split; nra.
    - assert (gap < 0) by (unfold gap in *; lra). exists (- (e / 2)). rewrite Rabs_Ropp, Rabs_pos_eq by lra.
      repeat split; nra. }
  destruct G as (h & Z & S & Up). specialize (H h Z S). rewrite Rplus_0_l, (pooled_at_0 _ _ _ _ _ W) in H.
  pose proof (pooled_least w x dx o h j J) as L. unfold moved in L. rewrite E in L.
  assert (Q : (pooled w x dx o h - x i) / h - dx i = (pooled w x dx o h - x i - h * dx i) / h) by (field; exact Z).
  rewrite Q in H. unfold Rdiv in H. rewrite Rabs_mult, Rabs_inv in H.
  apply (Rmult_lt_compat_r (Rabs h)) in H; [|now apply Rabs_pos_lt].
  rewrite Rmult_assoc, Rinv_l, Rmult_1_r in H by now apply Rabs_no_R0.
  rewrite <- Rabs_mult, (Rabs_pos_eq (gap * h)) in H by lra.
  pose proof (Rle_abs (pooled w x dx o h - x i - h * dx i)). unfold gap in *. lra.
Qed.

(** Law 2, of max_pool over the reals: where the tangent is the derivative, and where it is not. *)
Theorem max_pool_derivative w x dx o i : winner less_R w x o = Some i ->
  (is_derive (fun h => max_pool reals less_R w (moved x dx h) o) 0 (max_pool_jvp reals less_R w x dx o) <->
   forall j, In j (cells w o) -> x j = x i -> dx j = dx i).
Proof.
  intros W. assert (J : max_pool_jvp reals less_R w x dx o = dx i) by (unfold max_pool_jvp, take; now rewrite W).
  rewrite J. split.
  - intros D j I E. destruct (Req_dec (dx j) (dx i)) as [|N]; auto.
    now elim (tied_unlike_no_derivative w x dx o i j W I E N).
  - now apply tied_alike_derivative.
Qed.
(** Law 2, of max_pool where one tap is greater than all others: in every direction. *)
Theorem max_pool_derivative_alone w x dx o i : winner less_R w x o = Some i ->
  (forall j, In j (cells w o) -> j <> i -> x j < x i) ->
  is_derive (fun h => max_pool reals less_R w (moved x dx h) o) 0 (max_pool_jvp reals less_R w x dx o).
Proof.
  intros W S. apply (proj2 (max_pool_derivative w x dx o i W)). intros j J E.
  destruct (list_eq_dec Z.eq_dec j i) as [->|N]; auto. specialize (S j J N). lra.
Qed.
