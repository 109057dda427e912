(** Global pooling: one cell that reads everything; the tie rules of its maximum.

    Global averages and maxima are adaptive windows with one cell, and `global_avg_is_adaptive` and
    `global_max_is_adaptive` say so. The maximum has two more rules for ties, which frameworks differ in: "all", by
    which each greatest cell receives the whole cotangent and the tangent is the sum of theirs, and "split", by which
    they share it evenly and the tangent is their mean. Both pairs are adjoint. Neither is the derivative where cells
    tie; with one greatest cell both are that of max_pool. *)
From Coq Require Import ZArith List Bool Lia Ring.
From Specgrad Require Import Numbers Relation Window Readers Sizes Conv AvgPool MaxPool.
Import ListNotations.
Open Scope Z_scope.

(** All cells of sample b, row-major; and the adaptive window with one cell. *)
Definition all_cells sizes b := map (cons b) (positions sizes).
Definition one_cell lead sizes := mapped lead :: map (fun n => Adaptive n 1) sizes.
Definition cell_of (b : Z) (sizes : list Z) := b :: map (fun _ => 0) sizes.

Section GlobalPool.
Context {F : Type} (num : numbers F) (less : F -> F -> bool).
Add Ring numbers_ring : (laws num).
Variables (lead : Z) (sizes : list Z).

Definition global_avg x b := mul num (share_of num (length (positions sizes))) (sum num (all_cells sizes b) x).
Definition global_winner x b := first_winner less x (all_cells sizes b).
Definition global_max x b := match global_winner x b with Some i => x i | None => zero num end.

(** ties="all" and "split": the greatest cells of sample b, and what each of them weighs. *)
Inductive ties := All | Split.
Definition greatest (x : list Z -> F) m p := negb (less (x p) m).
Definition maximisers x m b := filter (greatest x m) (all_cells sizes b).
Definition tie_weight rule n := match rule with All => one num | Split => share_of num n end.
Definition tie_reads x (m : Z -> F) (b : Z) p := if greatest x (m b) (b :: p) then Some (b :: p) else None.
Definition global_max_jvp rule x m (dx : list Z -> F) b :=
  let n := length (maximisers x (m b) b) in
  gather num (positions sizes) (tie_reads x m) (fun _ _ => tie_weight rule n) dx b.
Definition global_max_vjp rule x m (n : Z -> nat) (gy : Z -> F) i :=
  scatter num (range lead) (positions sizes) same (tie_reads x m) (fun b _ => tie_weight rule (n b)) gy i.

Lemma one_cell_reads t : Forall (fun n => 1 <= n) sizes -> In t (positions sizes) ->
  reads_all (map (fun n => Adaptive n 1) sizes) (map (fun _ => 0) sizes) t = Some t.
Proof.
  rewrite in_positions. intros S T. induction T as [|i n t rest I T IH]; [reflexivity|].
  inversion_clear S as [|? ? N S'].
  cbn [map reads_all]. rewrite adaptive_reads by lia. unfold start, stop, ceil_div. rewrite Z.div_1_r, Z.div_1_r.
  replace (0 * n + i <? - - ((0 + 1) * n)) with true by (symmetry; apply Z.ltb_lt; lia). rewrite IH by exact S'.
  reflexivity.
Qed.
Lemma mapped_reads n b : 0 <= b < n -> reads (mapped n) b 0 = Some b.
Proof.
  intros H. unfold reads, place, mapped, size. replace (1 * b + 1 * 0 - 0) with b by ring.
  replace (within 0 n b) with true; [reflexivity|]. symmetry. now apply within_spec.
Qed.
Lemma one_cell_cells b : Forall (fun n => 1 <= n) sizes -> 0 <= b < lead ->
  cells (one_cell lead sizes) (cell_of b sizes) = all_cells sizes b.
Proof.
  intros S B. unfold cells, one_cell, cell_of, all_cells, taps.
  cbn [map kernel mapped positions range Z.to_nat Pos.to_nat].
  rewrite map_map. change (map (fun x => kernel (Adaptive x 1)) sizes) with (map (fun x : Z => x) sizes).
  rewrite map_id.
  simpl. rewrite app_nil_r, flat_map_concat_map, map_map, <- flat_map_concat_map, mapped_reads by exact B.
  assert (H : forall t, In t (positions sizes) -> reads_all (map (fun n => Adaptive n 1) sizes) (map (fun _ => 0) sizes)
    t = Some t)
    by (intros; now apply one_cell_reads).
  induction (positions sizes) as [|t l IH]; [reflexivity|]. simpl. rewrite H by auto with datatypes. simpl.
  f_equal. apply IH. auto with datatypes.
Qed.

(** Law 5: global is adaptive with one cell (values). *)
Theorem global_avg_is_adaptive x b : Forall (fun n => 1 <= n) sizes -> 0 <= b < lead ->
  global_avg x b = avg_pool num (share num Inside (one_cell lead sizes)) (one_cell lead sizes) x (cell_of b sizes).
Proof.
  intros S B. rewrite avg_pool_value. unfold share. rewrite inside_counts_cells, one_cell_cells by assumption.
  unfold global_avg, all_cells at 2. now rewrite map_length.
Qed.
Theorem global_max_is_adaptive x b : Forall (fun n => 1 <= n) sizes -> 0 <= b < lead ->
  global_max x b = max_pool num less (one_cell lead sizes) x (cell_of b sizes).
Proof. intros S B. unfold global_max, max_pool, take, winner, global_winner. now rewrite one_cell_cells. Qed.

Lemma in_all b p : In b (range lead) -> In p (positions sizes) -> In (b :: p) (positions (lead :: sizes)).
Proof. rewrite in_range, !in_positions. now constructor. Qed.

(** Law 1 for both tie rules. *)
Theorem global_max_adjoint rule x m dx gy :
  sum num (range lead) (fun b => mul num (gy b) (global_max_jvp rule x m dx b)) =
  inner num (positions (lead :: sizes)) (global_max_vjp rule x m (fun b => length (maximisers x (m b) b)) gy) dx.
Proof.
  unfold inner, global_max_vjp. rewrite <- (adjoint num _ _ same _ _ (positions (lead :: sizes)));
    [reflexivity | apply same_spec | | apply positions_nodup].
  intros b p i B P. unfold tie_reads. destruct (greatest _ _ _); [|discriminate]. intros [= <-]. now apply in_all.
Qed.
(** [first] "all": the tangent is the sum over the maximisers; "split": their mean. *)
Theorem global_max_tangent rule x m dx b : global_max_jvp rule x m dx b =
  mul num (tie_weight rule (length (maximisers x (m b) b))) (sum num (maximisers x (m b) b) dx).
Proof.
  unfold global_max_jvp. set (c := tie_weight _ _). unfold gather, maximisers, all_cells, tie_reads.
  induction (positions sizes) as [|p l IH]; simpl; [ring|]. rewrite IH.
  destruct (greatest x (m b) (b :: p)); simpl; ring.
Qed.
(** [first] Every maximiser receives the whole cotangent ("all"), or its even share ("split"); others nothing. *)
Theorem global_max_cotangent rule x m n gy b p : In b (range lead) -> In p (positions sizes) ->
  global_max_vjp rule x m n gy (b :: p) =
  if greatest x (m b) (b :: p) then mul num (tie_weight rule (n b)) (gy b) else zero num.
Proof.
  intros B P. unfold global_max_vjp, scatter.
  set (f := fun q => match q with c :: r => match tie_reads x m c r with
     | Some j => if same j (b :: p) then mul num (tie_weight rule (n c)) (gy c) else zero num | None => zero num end
       | [] => zero num end).
  transitivity (sum num (positions (lead :: sizes)) f); [now rewrite sum_positions|].
  transitivity (sum num (positions (lead :: sizes))
    (fun q => mul num (if same (b :: p) q then one num else zero num) (f q))).
  - apply sum_ext; intros q _. destruct (same (b :: p) q) eqn:E; [ring|]. unfold f. destruct q as [|c r]; [ring|].
    unfold tie_reads. destruct (greatest _ _ _); [|ring]. destruct (same (c :: r) (b :: p)) eqn:G; [|ring].
    apply same_spec in G. rewrite (proj2 (same_spec (b :: p) (c :: r))) in E by now symmetry. discriminate.
  - rewrite (pick num same _ same_spec (positions_nodup _)) by now apply in_all. unfold f, tie_reads.
    destruct (greatest _ _ _); [|ring]. rewrite (proj2 (same_spec (b :: p) (b :: p)) eq_refl). ring.
Qed.
(** [first] There is a maximiser: "split" divides by a number that is not 0. *)
Theorem maximisers_some x b i : weak_order less -> global_winner x b = Some i -> In i (maximisers x (global_max x b) b).
Proof.
  intros O H. unfold maximisers, global_max. rewrite H. apply filter_In. split; [eapply first_winner_in; eauto|].
  unfold greatest. now rewrite (proj1 O).
Qed.
End GlobalPool.
