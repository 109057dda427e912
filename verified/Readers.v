(** Row-major order of positions, and the relation of a window read backwards.

    A scatter that walks over all outputs and taps for each input cell would be right and slow. Here it is read axis
    by axis, as the program does it: for each axis the outputs and taps that read index i, then the axes that are
    left. `scatter_along_scatter` says that this is the same sum, and `window_adjoint` is the law of Relation.v for
    it, of any window, any rank and any weights. `ravel` is the number of a position in row-major order, which the
    extracted reference program uses to print tensors, and the positions are each listed once. *)
From Coq Require Import ZArith List Bool Lia Ring FinFun.
From Specgrad Require Import Numbers Relation Window.
Import ListNotations.
Open Scope Z_scope.

(** The place of a position among all positions of a shape. *)
Fixpoint ravel (shape p : list Z) : Z :=
  match shape, p with
  | _ :: rest, i :: q => i * fold_right Z.mul 1 rest + ravel rest q
  | _, _ => 0
  end.
Fixpoint same (p q : list Z) : bool :=
  match p, q with [], [] => true | i :: p, j :: q => (i =? j) && same p q | _, _ => false end.

Lemma same_spec p q : same p q = true <-> p = q.
Proof.
  revert q. induction p as [|i p IH]; intros [|j q]; simpl; split; intros H; try easy.
  - apply andb_true_iff in H. destruct H as [H1 H2]. apply Z.eqb_eq in H1. apply IH in H2. now subst.
  - injection H as -> ->. rewrite Z.eqb_refl. now apply IH.
Qed.

Lemma range_nodup n : NoDup (range n).
Proof. apply Injective_map_NoDup; [intros a b; lia | apply seq_NoDup]. Qed.

Lemma nodup_app {A} (l m : list A) : NoDup l -> NoDup m -> (forall a, In a l -> ~ In a m) -> NoDup (l ++ m).
Proof.
  induction l as [|a l IH]; simpl; intros L M D; [exact M|]. inversion_clear L as [|? ? N L'].
  constructor; [rewrite in_app_iff; intros [H|H]; [tauto | apply (D a); auto] | apply IH; auto].
Qed.

Lemma positions_nodup shape : NoDup (positions shape).
Proof.
  induction shape as [|n rest IH]; simpl; [repeat constructor; easy|].
  pose proof (range_nodup n) as D. induction (range n) as [|i l IHl]; simpl; [constructor|].
  inversion_clear D as [|? ? N D'].
  apply nodup_app; [apply Injective_map_NoDup; [intros a b [=]; auto | exact IH] | auto |].
  intros p Hp Hq. apply in_map_iff in Hp. destruct Hp as (q & <- & _). apply in_flat_map in Hq.
  destruct Hq as (j & Hj & Hq). apply in_map_iff in Hq. destruct Hq as (? & [= -> _] & _). contradiction.
Qed.

Lemma length_range n : length (range n) = Z.to_nat n.
Proof. unfold range. now rewrite map_length, seq_length. Qed.
Lemma length_positions shape : Forall (fun n => 0 <= n) shape ->
  Z.of_nat (length (positions shape)) = fold_right Z.mul 1 shape.
Proof.
  induction 1 as [|n rest N R IH]; [reflexivity|]. simpl. rewrite <- IH.
  rewrite <- (Z2Nat.id n) at 2 by exact N. rewrite <- length_range. clear IH R N.
  induction (range n) as [|i l IHl]; cbn [flat_map length]; [lia|]. rewrite app_length, map_length. lia.
Qed.

(** Positions are in row-major order: the one at place `ravel` is p. *)
Theorem row_major shape p : In p (positions shape) -> nth_error (positions shape) (Z.to_nat (ravel shape p)) = Some p.
Proof.
  rewrite in_positions. induction 1 as [|i n p rest [I1 I2] H IH]; [reflexivity|]. cbn [positions ravel].
  assert (P : Forall (fun n => 0 <= n) rest) by (clear IH; induction H; constructor; [lia | auto]).
  assert (R : 0 <= ravel rest p) by (clear IH; induction H; simpl; [lia|]; 
    inversion_clear P as [|? ? A B]; pose proof (IHForall2 B); assert (0 <= fold_right Z.mul 1 l') by
    (clear - B; induction B; simpl; nia); nia).
  rewrite <- (length_positions rest P).
  assert (L : (Z.to_nat (ravel rest p) < length (positions rest))%nat) by (apply nth_error_Some; congruence).
  unfold range. replace (Z.to_nat n) with (Z.to_nat i + S (Z.to_nat (n - i - 1)))%nat by lia.
  rewrite seq_app, map_app, flat_map_app, nth_error_app2.
  all: assert (E : forall a b, length (flat_map (fun i => map (cons i) (positions rest)) (map Z.of_nat (seq a b)))
    = (b * length (positions rest))%nat) by
    (intros a b; revert a; induction b as [|b IHb]; intros a; simpl;
      [reflexivity | rewrite app_length, map_length, IHb; lia]).
  - rewrite E. simpl. rewrite nth_error_app1 by (rewrite map_length; lia).
    replace (Z.to_nat _ - _)%nat with (Z.to_nat (ravel rest p)) by nia. rewrite Z2Nat.id by lia.
    now apply map_nth_error.
  - rewrite E. nia.
Qed.

Section Readers.
Context {F : Type} (num : numbers F).
Add Ring numbers_ring : (laws num).
Local Notation zero := (zero num).
Local Notation sum := (sum num).

(** The sum of f over the outputs and taps that read cell i. *)
Fixpoint readers (w : list axis) (i : list Z) (f : list Z -> list Z -> F) : F :=
  match w, i with
  | [], [] => f [] []
  | a :: w, i :: is => sum (range (out a)) (fun o => sum (range (kernel a)) (fun t =>
      match reads a o t with
      | Some j => if j =? i then readers w is (fun os ts => f (o :: os) (t :: ts)) else zero
      | None => zero
      end))
  | _, _ => zero
  end.

Definition gather_along w weight x o := gather num (taps w) (reads_all w) weight x o.
Definition scatter_along w (weight : list Z -> list Z -> F) gy i :=
  readers w i (fun o t => mul num (weight o t) (gy o)).

Lemma sum_positions n rest f : sum (positions (n :: rest)) f =
  sum (range n) (fun i => sum (positions rest) (fun p => f (i :: p))).
Proof. simpl. rewrite sum_flat_map. apply sum_ext; intros i _. now rewrite sum_map. Qed.

Lemma readers_all w i f : readers w i f = sum (outs w) (fun o => sum (taps w) (fun t =>
  match reads_all w o t with Some j => if same j i then f o t else zero | None => zero end)).
Proof.
  revert i f. induction w as [|a w IH]; intros is f; unfold outs, taps; cbn [map].
  - destruct is; simpl; ring.
  - rewrite sum_positions. destruct is as [|i is]; simpl readers.
    + symmetry. apply sum_zeros; intros o _. apply sum_zeros; intros os _. rewrite sum_positions.
      apply sum_zeros; intros t _. apply sum_zeros; intros ts _. simpl.
      destruct (reads a o t); [|reflexivity]. now destruct (reads_all w os ts).
    + apply sum_ext; intros o _. 
      transitivity (sum (range (kernel a)) (fun t =>
        sum (positions (map out w)) (fun os => sum (positions (map kernel w)) (fun ts =>
        match reads_all (a :: w) (o :: os) (t :: ts) with
        | Some j => if same j (i :: is) then f (o :: os) (t :: ts) else zero | None => zero end)))).
      2: { rewrite sum_swap. apply sum_ext; intros os _. now rewrite sum_positions. }
      apply sum_ext; intros t _. cbn [reads_all]. destruct (reads a o t) as [j|].
      * destruct (j =? i) eqn:J.
        -- rewrite IH. apply sum_ext; intros os _. apply sum_ext; intros ts _.
           destruct (reads_all w os ts); [|reflexivity]. simpl. now rewrite J.
        -- symmetry. apply sum_zeros; intros os _. apply sum_zeros; intros ts _.
           destruct (reads_all w os ts); [|reflexivity]. simpl. now rewrite J.
      * symmetry. apply sum_zeros; intros os _. now apply sum_zeros.
Qed.

(** Law 1: read backwards axis by axis or all at once, the same sum. *)
Theorem scatter_along_scatter w weight gy i :
  scatter_along w weight gy i = scatter num (outs w) (taps w) same (reads_all w) weight gy i.
Proof. apply readers_all. Qed.

(** Law 1, of any window and any weights: <gy, gather x> = <scatter gy, x>. *)
Theorem window_adjoint w weight x gy :
  sum (outs w) (fun o => mul num (gy o) (gather_along w weight x o)) =
    sum (ins w) (fun i => mul num (scatter_along w weight gy i) (x i)).
Proof.
  unfold gather_along. rewrite (adjoint num _ _ same (reads_all w) weight (ins w)).
  - apply sum_ext; intros i _. now rewrite scatter_along_scatter.
  - apply same_spec.
  - intros o t i _ _. apply reads_all_inside.
  - apply positions_nodup.
Qed.
End Readers.
