(** The tangent of smooth_max_pool is its derivative, by limits.

    Along a line x + h * dx, the value of each window has the derivative at h = 0 that `smooth_max_pool_jvp` gives:
    for any beta but 0, whichever way padded taps count, where a window has a tap. `moved` is that line; it is used
    again for maxima (MaxDerivative.v) and for graphs (GraphDerivative.v). The proof is calculus: the derivative of a
    sum of exponentials, then of its logarithm, by Coquelicot. *)
From Coq Require Import ZArith Reals List Lra.
From Coquelicot Require Import Coquelicot.
From Specgrad Require Import Numbers Relation Window Readers AvgPool MaxPool SmoothMax.
Import ListNotations.
Open Scope R_scope.

(** Values and their changes, after a step h. *)
Definition stepped h (l : list (R * R)) := map (fun p => fst p + h * snd p) l.

Lemma total_map {A B} (g : A -> B) l f : total (map g l) f = total l (fun a => f (g a)).
Proof. apply (sum_map reals). Qed.
Lemma total_mul_l {A} c (l : list A) f : c * total l f = total l (fun a => c * f a).
Proof. apply (sum_mul_l reals). Qed.
Lemma total_ext {A} (l : list A) f g : (forall a, In a l -> f a = g a) -> total l f = total l g.
Proof. apply (sum_ext reals). Qed.

Lemma exps_derivative beta l :
  is_derive (fun h => exps beta (stepped h l)) 0 (total l (fun p => beta * snd p * exp (beta * fst p))).
Proof.
  apply (is_derive_ext (fun h => total l (fun p => exp (beta * (fst p + h * snd p))))).
  { intros h. unfold exps, stepped. now rewrite total_map. }
  induction l as [|[v d] l IH].
  - change (is_derive (fun _ : R => 0) 0 0). auto_derive; [exact I | reflexivity].
  - set (f := fun h => exp (beta * (v + h * d))). set
      (g := fun h => total l (fun p => exp (beta * (fst p + h * snd p)))) in *.
    change (is_derive (fun h => plus (f h) (g h)) 0
      (plus (beta * d * exp (beta * v)) (total l (fun p => beta * snd p * exp (beta * fst p))))).
    apply (is_derive_plus f g); [|exact IH]. unfold f. auto_derive; [exact I|]. rewrite Rmult_0_l, Rplus_0_r. ring.
Qed.
Lemma smooth_max_derivative beta l : beta <> 0 -> l <> [] ->
  is_derive (fun h => smooth_max beta (stepped h l)) 0 (total l (fun p => softmax beta (map fst l) (fst p) * snd p)).
Proof.
  intros B E. unfold smooth_max.
  assert (S : stepped 0 l = map fst l) by (apply map_ext; intros [v d]; simpl; ring).
  assert (P : 0 < exps beta (stepped 0 l)) by (apply exps_pos; intros H; apply map_eq_nil in H; contradiction).
  evar_last.
  - apply (is_derive_comp (fun s => ln s / beta) (fun h => exps beta (stepped h l))); [|apply exps_derivative].
    auto_derive; [exact P | reflexivity].
  - rewrite S in *. unfold scal; simpl; unfold mult; simpl. rewrite Rmult_comm, total_mul_l. apply total_ext.
    intros [v d] _.
    unfold softmax. simpl. field. split; [lra | exact B].
Qed.

Definition moved (x dx : list Z -> R) h i := x i + h * dx i.
(** The taps that smooth_max_pool takes, with their changes. *)
Definition tap_pairs (zero_padded : bool) x dx w o :=
  if zero_padded then map (fun t => (tap_value x w o t, tap_value dx w o t)) (taps w)
    else map (fun i => (x i, dx i)) (cells w o).
Lemma tap_pairs_values z x dx w o : map fst (tap_pairs z x dx w o) = tap_values z x w o.
Proof. destruct z; unfold tap_pairs, tap_values; rewrite map_map; reflexivity. Qed.
Lemma tap_pairs_moved z x dx w o h : stepped h (tap_pairs z x dx w o) = tap_values z (moved x dx h) w o.
Proof.
  destruct z; unfold stepped, tap_pairs, tap_values; rewrite map_map; apply map_ext; [|reflexivity]. intros t. simpl.
  unfold tap_value, moved. destruct (reads_all w o t); [reflexivity | ring].
Qed.
Lemma jvp_is_total z beta w x dx o :
  smooth_max_pool_jvp z beta w x dx o =
  total (tap_pairs z x dx w o) (fun p => softmax beta (tap_values z x w o) (fst p) * snd p).
Proof.
  unfold smooth_max_pool_jvp, gather_along, gather, smooth_weight, total. set (l := tap_values z x w o).
  destruct z; unfold tap_pairs.
  - rewrite sum_map. apply sum_ext; intros t _. unfold tap_value. simpl. destruct (reads_all w o t);
      [reflexivity | ring].
  - rewrite sum_map. unfold cells. rewrite sum_flat_map. apply sum_ext; intros t _. unfold tap_value.
    destruct (reads_all w o t); simpl; [ring | reflexivity].
Qed.

(** Law 2: the tangent of smooth_max_pool is its derivative along dx, for any beta but 0, whichever way padded taps
   count. *)
Theorem smooth_max_pool_derivative z beta w x dx o : beta <> 0 -> tap_values z x w o <> [] ->
  is_derive (fun h => smooth_max_pool z beta w (moved x dx h) o) 0 (smooth_max_pool_jvp z beta w x dx o).
Proof.
  intros B E. rewrite jvp_is_total, <- (tap_pairs_values z x dx w o).
  apply (is_derive_ext (fun h => smooth_max beta (stepped h (tap_pairs z x dx w o)))).
  - intros h. unfold smooth_max_pool. now rewrite tap_pairs_moved.
  - apply smooth_max_derivative; [exact B|]. intros H. apply E. now rewrite <- (tap_pairs_values z x dx w o), H.
Qed.
