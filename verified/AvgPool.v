(** avg_pool over any window: divisors, values, cotangents.

    An average is the sum of the cells that a window reads, times the share of one of them. The share is one over the
    divisor, and there are three: the cells that are read (`Inside`), the cells with the padding around the input
    (`Padded`), or a number that is given. A window without a cell gives 0. The padded divisor is the whole kernel,
    except where `ceil` lets a window hang over the padding too: there the part beyond does not count. Averages are
    linear, so their tangent is themselves, and their adjoint law that of Readers.v. Last, with a given divisor an
    average is a depthwise convolution. *)
From Coq Require Import ZArith List Bool Lia Ring.
From Specgrad Require Import Numbers Relation Window Readers Sizes Conv.
Import ListNotations.
Open Scope Z_scope.

(** The input cells that output o reads, in row-major order of its taps. *)
Definition cells w o := flat_map (fun t => match reads_all w o t with Some i => [i] | None => [] end) (taps w).

Definition inside a o t := match reads a o t with Some _ => true | None => false end.
(** The tap lies in the input or in its padding. *)
Definition counted a o t :=
  match a, place a o t with
  | Strided n _ _ _ lo hi _, Some i => within (- lo) (n + hi) i
  | _, _ => inside a o t
  end.
Fixpoint every (test : axis -> Z -> Z -> bool) w o t :=
  match w, o, t with
  | [], [], [] => true
  | a :: w, o :: os, t :: ts => test a o t && every test w os ts
  | _, _, _ => false
  end.
Definition count test w o : nat := length (filter (every test w o) (taps w)).

Inductive divisor (F : Type) := Padded | Inside | By (d : F).
Arguments Padded {F}. Arguments Inside {F}. Arguments By {F}.

Section AvgPool.
Context {F : Type} (num : numbers F).
Add Ring numbers_ring : (laws num).

(** 1 / n, and 0 where there is nothing to count. *)
Definition share_of n := match n with O => zero num | _ => div num (one num) (number num n) end.
Definition share d w o :=
  match d with Padded => share_of (count counted w o) | Inside => share_of (count inside w o)
    | By v => div num (one num) v end.

Definition avg_pool (part : list Z -> F) w x o := gather_along num w (fun o _ => part o) x o.
Definition avg_pool_vjp (part : list Z -> F) w gy i := scatter_along num w (fun o _ => part o) gy i.

(** Law 1 for avg_pool with every divisor, adaptive and global ones too: it is linear, so its tangent is itself. *)
Theorem avg_pool_adjoint d w dx gy :
  inner num (outs w) gy (avg_pool (share d w) w dx) = inner num (ins w) (avg_pool_vjp (share d w) w gy) dx.
Proof. apply window_adjoint. Qed.

Lemma gather_cells w x o c : gather_along num w (fun _ _ => c) x o = mul num c (sum num (cells w o) x).
Proof.
  unfold gather_along, gather, cells. rewrite sum_flat_map, sum_mul_l. apply sum_ext; intros t _.
  destruct (reads_all w o t); simpl; ring.
Qed.
(** [A1] The sum of the taps inside the input, times the share of one tap. *)
Theorem avg_pool_value d w x o : avg_pool (share d w) w x o = mul num (share d w o) (sum num (cells w o) x).
Proof. apply (gather_cells w x o (share d w o)). Qed.

Lemma every_inside w o t : every inside w o t = match reads_all w o t with Some _ => true | None => false end.
Proof.
  revert o t. induction w as [|a w IH]; intros [|o os] [|t ts]; simpl; try reflexivity.
  unfold inside at 1. destruct (reads a o t); simpl; [|reflexivity]. rewrite IH. now destruct (reads_all w os ts).
Qed.
(** [A1] Without the padding, the divisor is the number of cells that are read. *)
Theorem inside_counts_cells w o : count inside w o = length (cells w o).
Proof.
  unfold count, cells. induction (taps w) as [|t l IH]; simpl; [reflexivity|].
  rewrite every_inside. destruct (reads_all w o t); simpl; now rewrite IH.
Qed.
(** [A1] A window with no inside tap gives 0. *)
Theorem avg_pool_empty w x o : cells w o = [] -> avg_pool (share Inside w) w x o = zero num.
Proof. intros E. rewrite avg_pool_value, E. simpl. ring. Qed.

(** The windows end inside the padded input: so it is without ceil. *)
Definition fits a := match a with Strided n k s e lo hi m => 1 <= s /\ 0 <= e /\ m <= floor_out n k s e lo hi
  | _ => False end.
Lemma every_counted w o t : Forall fits w -> In o (outs w) -> In t (taps w) -> every counted w o t = true.
Proof.
  unfold outs, taps. rewrite !in_positions. intros H. revert o t. induction H as [|a w A H IH]; intros o t O T;
    inversion O as [|o1 ? os ? O1 O2]; inversion T as [|t1 ? ts ? T1 T2]; subst; [reflexivity|]. simpl.
  rewrite IH by assumption. destruct a as [n k s e lo hi m| |]; simpl in *; [|tauto|tauto]. rewrite andb_true_r.
  apply within_spec. destruct A as (S & E & M). pose proof (floor_out_counts n k s e lo hi o1). unfold span in *. nia.
Qed.
(** [A1] The divisor that counts padding is the whole kernel, except under ceil. *)
Theorem padded_counts_kernel w o : Forall fits w -> In o (outs w) -> count counted w o = length (taps w).
Proof.
  intros H O. unfold count. assert (A : forall t, In t (taps w) -> every counted w o t = true) by auto using
    every_counted.
  induction (taps w) as [|t l IH]; simpl; [reflexivity|]. rewrite A by (left; reflexivity). simpl.
  rewrite IH; auto with datatypes.
Qed.

Lemma grouped_by_one c o t : 1 <= c -> reads (Grouped c c c) o t = reads (mapped c) o t.
Proof.
  intros C. unfold reads, place, size, mapped. rewrite Z.div_same by lia. rewrite Z.div_1_r.
  replace (o * 1 + t) with (1 * o + 1 * t - 0) by ring. reflexivity.
Qed.
(** Law 5: with a constant divisor it is a depthwise convolution. *)
Theorem avg_pool_is_depthwise_conv batch c w d x o : 1 <= c ->
  avg_pool (share (By d) (mapped batch :: mapped c :: w)) (mapped batch :: mapped c :: w) x o =
  conv num batch c c c w (fun _ => div num (one num) d) (nothing num) x o.
Proof.
  intros C. unfold avg_pool, conv, nothing, gather_along, gather, conv_window, along, share.
  transitivity (add num (zero num) (sum num (taps (mapped batch :: mapped c :: w)) (fun t =>
    match reads_all (mapped batch :: mapped c :: w) o t with Some i => mul num (div num (one num) d) (x i)
      | None => zero num end))).
  { ring. }
  f_equal. unfold taps. cbn [map kernel mapped]. rewrite Z.div_same by lia. apply sum_ext; intros t _.
  destruct o as [|b [|o p]]; [reflexivity| |]; destruct t as [|t0 [|t1 ts]]; try reflexivity.
  cbn [reads_all]. now rewrite grouped_by_one.
Qed.
End AvgPool.
