(** smooth_max_pool over the reals: between the maximum and the maximum + ln(taps)/beta; its weights sum to 1.

    S = ln(sum over taps of exp(beta * x)) / beta. The weights of its tangent are the softmax of the taps: exp(beta *
    x) over the sum. Padded taps count as 0, or are left out, as the call says. Its tangent is linear in the change,
    so its cotangent is the same scatter as a convolution's, with these weights. For beta > 0 the value lies above
    the maximum of the taps, by at most ln of their number over beta: so it nears the maximum as beta grows. That the
    tangent is the derivative stands in SmoothDerivative.v. This file needs exp and ln, so the axioms of Coq's reals;
    those before it need none. *)
From Coq Require Import ZArith Reals List Lra.
From Specgrad Require Import Numbers Relation Window Readers Conv AvgPool MaxPool.
Import ListNotations.
Open Scope R_scope.

Definition total {A} (l : list A) (f : A -> R) := sum reals l f.
Definition exps beta l := total l (fun v => exp (beta * v)).
Definition smooth_max beta l := ln (exps beta l) / beta.
Definition softmax beta l v := exp (beta * v) / exps beta l.

(** The taps of output o: a padded tap is 0 and counts, or is left out. *)
Definition tap_value (x : list Z -> R) w o t := match reads_all w o t with Some i => x i | None => 0 end.
Definition tap_values (zero_padded : bool) (x : list Z -> R) w o := 
  if zero_padded then map (tap_value x w o) (taps w) else map x (cells w o).
Definition smooth_max_pool zero_padded beta w x o := smooth_max beta (tap_values zero_padded x w o).
Definition smooth_weight zero_padded beta w x o t := softmax beta (tap_values zero_padded x w o) (tap_value x w o t).
Definition smooth_max_pool_jvp zero_padded beta w x dx o :=
  gather_along reals w (smooth_weight zero_padded beta w x) dx o.
Definition smooth_max_pool_vjp zero_padded beta w x gy i :=
  scatter_along reals w (smooth_weight zero_padded beta w x) gy i.

Lemma total_cons {A} a (l : list A) f : total (a :: l) f = f a + total l f.
Proof. reflexivity. Qed.
Lemma exps_nonneg beta l : 0 <= exps beta l.
Proof. unfold exps. induction l; [simpl; lra|]. rewrite total_cons. pose proof (exp_pos (beta * a)). lra. Qed.
Lemma exps_pos beta l : l <> [] -> 0 < exps beta l.
Proof.
  destruct l; [easy|]. intros _. unfold exps. rewrite total_cons. pose proof (exp_pos (beta * r)).
  pose proof (exps_nonneg beta l).
  unfold exps in *. lra.
Qed.
Lemma exps_one beta l v : In v l -> exp (beta * v) <= exps beta l.
Proof.
  unfold exps. induction l as [|a l IH]; [easy|]. intros [-> | H]; rewrite total_cons.
  - pose proof (exps_nonneg beta l). unfold exps in *. lra.
  - pose proof (exp_pos (beta * a)). specialize (IH H). lra.
Qed.
Lemma exps_all beta l m : 0 < beta -> (forall v, In v l -> v <= m) -> exps beta l <= INR (length l) * exp (beta * m).
Proof.
  intros B. unfold exps. induction l as [|a l IH]; intros H; [simpl; lra|]. rewrite total_cons. 
  change (length (a :: l)) with (S (length l)). rewrite S_INR.
  assert (exp (beta * a) <= exp (beta * m)).
  { assert (beta * a <= beta * m) by (apply Rmult_le_compat_l; [lra | apply H; now left]).
    destruct H0; [left; now apply exp_increasing | right; now rewrite H0]. }
  assert (total l (fun v => exp (beta * v)) <= INR (length l) * exp (beta * m)) by
    (apply IH; intros; apply H; now right). lra.
Qed.
Lemma ln_le a b : 0 < a -> a <= b -> ln a <= ln b.
Proof. intros A [H|H]; [left; now apply ln_increasing | right; now rewrite H]. Qed.

(** Law 5: smooth max lies in [max, max + ln(taps)/beta], the maximum over the same taps. *)
Theorem smooth_max_between beta l m : 0 < beta -> In m l -> (forall v, In v l -> v <= m) ->
  m <= smooth_max beta l <= m + ln (INR (length l)) / beta.
Proof.
  intros B M H. assert (E : l <> []) by (intros ->; destruct M). unfold smooth_max.
  assert (L : 0 < INR (length l)) by (apply lt_0_INR; destruct l; [easy | simpl; auto with arith]).
  split.
  - apply Rmult_le_reg_r with beta; [exact B|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l, Rmult_1_r by lra.
    rewrite <- (ln_exp (m * beta)). apply ln_le; [apply exp_pos|]. rewrite Rmult_comm. now apply exps_one.
  - apply Rmult_le_reg_r with beta; [exact B|]. unfold Rdiv.
    rewrite Rmult_plus_distr_r, !Rmult_assoc, Rinv_l, !Rmult_1_r by lra.
    rewrite <- (ln_exp (m * beta)), <- ln_mult, (Rmult_comm m); [|apply exp_pos | exact L].
    apply ln_le; [now apply exps_pos|]. rewrite Rmult_comm. now apply exps_all.
Qed.
(** Law 5: the weights of one window sum to 1, and none is negative, for any beta. *)
Theorem softmax_sums_to_one beta l : l <> [] -> total l (softmax beta l) = 1.
Proof.
  intros E. pose proof (exps_pos beta l E). unfold softmax, Rdiv.
  assert (G : total l (fun v => exp (beta * v) * / exps beta l) = exps beta l * / exps beta l).
  { unfold exps at 2. unfold total. symmetry. apply (sum_mul_r reals). }
  rewrite G. apply Rinv_r. lra.
Qed.
Theorem softmax_nonnegative beta l v : l <> [] -> 0 <= softmax beta l v.
Proof.
  intros E. apply Rmult_le_pos; [left; apply exp_pos | left; apply Rinv_0_lt_compat; now apply exps_pos].
Qed.
(** Law 1 for smooth_max_pool, whichever way padded taps count. *)
Theorem smooth_max_pool_adjoint zero_padded beta w x dx gy :
  inner reals (outs w) gy (smooth_max_pool_jvp zero_padded beta w x dx) =
  inner reals (ins w) (smooth_max_pool_vjp zero_padded beta w x gy) dx.
Proof. apply window_adjoint. Qed.

(** The order of the reals is one that max_pool's theorems speak of. *)
Definition less_R (a b : R) : bool := if Rlt_dec a b then true else false.
Lemma reals_ordered : weak_order less_R.
Proof.
  unfold less_R. repeat split; intros; repeat match goal with
    | H : context [Rlt_dec ?a ?b] |- _ => destruct (Rlt_dec a b) | |- context [Rlt_dec ?a ?b] => destruct (Rlt_dec a b)
      end; 
    try easy; lra.
Qed.
Lemma not_less_R a b : less_R a b = false -> b <= a.
Proof. unfold less_R. destruct (Rlt_dec a b); [discriminate | lra]. Qed.
(** Law 5: with padded taps left out, smooth_max_pool lies within ln(taps)/beta of max_pool. *)
Theorem smooth_max_pool_near_max_pool beta w x o : 0 < beta -> cells w o <> [] ->
  max_pool reals less_R w x o <= smooth_max_pool false beta w x o <=
  max_pool reals less_R w x o + ln (INR (length (cells w o))) / beta.
Proof.
  intros B E. destruct (max_pool_greatest reals less_R reals_ordered w x o E) as (i & _ & I & V & G).
  unfold smooth_max_pool, tap_values. rewrite <- (map_length x (cells w o)). apply smooth_max_between; [exact B | |].
  - rewrite V. now apply in_map.
  - intros v. rewrite in_map_iff. intros (j & <- & J). now apply not_less_R, G.
Qed.
