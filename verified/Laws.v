(** Laws of every window: linear, one sample at a time, adaptive where sizes divide.

    They are what one tests an implementation by, since they need no second one. What is gathered or scattered is
    additive and homogeneous in its values; so convolutions without bias and averages are linear. A batch is its
    samples one by one: an output of sample b reads cells of sample b alone. And where the number of adaptive cells
    divides the size, an adaptive window reads what the strided one with that kernel and stride reads, in the same
    order, so that maxima agree in their ties too. *)
From Coq Require Import ZArith List Bool Lia Ring.
From Specgrad Require Import Numbers Relation Window Readers Sizes Conv AvgPool MaxPool GlobalPool.
Import ListNotations.
Open Scope Z_scope.

Section Laws.
Context {F : Type} (num : numbers F).
Add Ring numbers_ring : (laws num).

(** Law 3: what is gathered is additive and homogeneous; so are conv without bias, conv_transpose and avg_pool in x. *)
Theorem gather_additive w weight x y o :
  gather_along num w weight (fun i => add num (x i) (y i)) o =
    add num (gather_along num w weight x o) (gather_along num w weight y o).
Proof. unfold gather_along, gather. rewrite <- sum_plus. apply sum_ext; intros t _. destruct (reads_all w o t); ring.
Qed.
Theorem gather_homogeneous w weight c x o :
  gather_along num w weight (fun i => mul num c (x i)) o = mul num c (gather_along num w weight x o).
Proof. unfold gather_along, gather. rewrite sum_mul_l. apply sum_ext; intros t _. destruct (reads_all w o t); ring. Qed.
Theorem scatter_additive w weight x y i :
  scatter_along num w weight (fun o => add num (x o) (y o)) i =
    add num (scatter_along num w weight x i) (scatter_along num w weight y i).
Proof.
  rewrite !scatter_along_scatter. unfold scatter. rewrite <- sum_plus. apply sum_ext; intros o _. rewrite <- sum_plus.
  apply sum_ext; intros t _. destruct (reads_all w o t) as [j|]; [destruct (same j i)|]; ring.
Qed.
Theorem scatter_homogeneous w weight c x i :
  scatter_along num w weight (fun o => mul num c (x o)) i = mul num c (scatter_along num w weight x i).
Proof.
  rewrite !scatter_along_scatter. unfold scatter. rewrite sum_mul_l. apply sum_ext; intros o _. rewrite sum_mul_l.
  apply sum_ext; intros t _. destruct (reads_all w o t) as [j|]; [destruct (same j i)|]; ring.
Qed.

Lemma sum_one {A} (a : A) f : sum num [a] f = f a.
Proof. simpl. ring. Qed.
(** Law 6: a batch is its samples one by one, whatever is gathered. *)
Theorem batch_is_samples n w weight x b o : 0 <= b < n ->
  gather_along num (mapped n :: w) weight x (b :: o) =
  gather_along num w (fun o t => weight (b :: o) (0 :: t)) (fun i => x (b :: i)) o.
Proof.
  intros B. unfold gather_along, gather. change (taps (mapped n :: w)) with (positions (1 :: map kernel w)).
  rewrite sum_positions. change (range 1) with [0]. rewrite sum_one.
  apply sum_ext; intros t _. cbn [reads_all]. rewrite mapped_reads by exact B. now destruct (reads_all w o t).
Qed.
End Laws.

(** The cells that one axis reads. *)
Definition axis_cells a o := flat_map (fun t => match reads a o t with Some i => [i] | None => [] end)
  (range (kernel a)).
Lemma flat_map_map {A B C} (f : A -> B) (g : B -> list C) l : flat_map g (map f l) = flat_map (fun a => g (f a)) l.
Proof. induction l; simpl; congruence. Qed.
Lemma flat_map_flat_map {A B C} (f : A -> list B) (g : B -> list C) l :
  flat_map g (flat_map f l) = flat_map (fun a => flat_map g (f a)) l.
Proof. induction l; simpl; [reflexivity | now rewrite flat_map_app, IHl]. Qed.
Lemma map_flat_map {A B C} (f : A -> list B) (g : B -> C) l : map g (flat_map f l) = flat_map (fun a => map g (f a)) l.
Proof. induction l; simpl; [reflexivity | now rewrite map_app, IHl]. Qed.
Lemma cells_cons a w o os : cells (a :: w) (o :: os) = flat_map (fun i => map (cons i) (cells w os)) (axis_cells a o).
Proof.
  unfold cells, axis_cells, taps. cbn [map positions]. rewrite !flat_map_flat_map. apply flat_map_ext; intros t.
  rewrite flat_map_map. cbn [reads_all]. destruct (reads a o t) as [i|]; simpl.
  - rewrite app_nil_r, map_flat_map. apply flat_map_ext; intros ts. now destruct (reads_all w os ts).
  - induction (positions (map kernel w)); simpl; congruence.
Qed.

Lemma axis_cells_divide k m o : 1 <= k -> 0 <= o < m ->
  axis_cells (Adaptive (m * k) m) o = axis_cells (Strided (m * k) k k 1 0 0 m) o.
Proof.
  intros K O. unfold axis_cells. cbn [kernel]. unfold range.
  replace (Z.to_nat (m * k)) with (Z.to_nat k + Z.to_nat (m * k - k))%nat by nia.
  rewrite seq_app, map_app, flat_map_app.
  assert (S : start (m * k) m o = k * o) by (unfold start; rewrite (Z.mul_comm m k), Z.mul_assoc, Z.div_mul by lia;
    ring).
  assert (E : stop (m * k) m o = k * (o + 1)).
  { unfold stop, ceil_div. replace (- ((o + 1) * (m * k)))
      with (- ((o + 1) * k) * m) by ring. rewrite Z.div_mul by lia. ring. }
  assert (A : forall t, 0 <= t -> reads (Adaptive (m * k) m) o t = if t <? k then Some (k * o + t) else None).
  { intros t T. rewrite adaptive_reads by nia. rewrite S, E. 
    destruct (t <? k) eqn:H; [apply Z.ltb_lt in H; rewrite (proj2 (Z.ltb_lt _ _)) by lia | apply Z.ltb_ge in H;
      rewrite (proj2 (Z.ltb_ge _ _)) by lia]; reflexivity. }
  rewrite !flat_map_map. 
  match goal with |- ?l ++ ?r = ?q => assert (R : r = []) end.
  { assert (G : forall n l, (Z.to_nat k <= n)%nat ->
      flat_map (fun a => match reads (Adaptive (m * k) m) o (Z.of_nat a) with Some i => [i] | None => [] end) (seq n l)
      = []).
    { intros n l. revert n. induction l as [|l IH]; intros n N; [reflexivity|]. simpl. rewrite A by lia.
      rewrite (proj2 (Z.ltb_ge _ _)) by lia. apply IH. lia. }
    apply G. lia. }
  rewrite R, app_nil_r, !flat_map_concat_map. f_equal. apply map_ext_in. intros t T. apply in_seq in T.
  rewrite A by lia.
  rewrite (proj2 (Z.ltb_lt _ _)) by lia. unfold reads, place, size.
  replace (k * o + 1 * Z.of_nat t - 0) with (k * o + Z.of_nat t) by ring.
  replace (within 0 (m * k) (k * o + Z.of_nat t)) with true by (symmetry; apply within_spec; nia). reflexivity.
Qed.

(** Law 5: where the numbers of cells divide the sizes, adaptive windows read what strided ones read, in the same order;
   so means over the taps inside, maxima and winners are the same. *)
Definition adaptive_axes (l : list (Z * Z)) := map (fun km => Adaptive (snd km * fst km) (snd km)) l.
Definition dividing_axes (l : list (Z * Z)) := map
  (fun km => Strided (snd km * fst km) (fst km) (fst km) 1 0 0 (snd km)) l.
Theorem adaptive_is_strided l o : Forall (fun km => 1 <= fst km) l -> In o (outs (adaptive_axes l)) ->
  cells (adaptive_axes l) o = cells (dividing_axes l) o.
Proof.
  unfold outs. rewrite in_positions. intros K. revert o. induction K as [|[k m] l K1 K IH]; intros o O.
  - inversion O. reflexivity.
  - inversion O as [|o1 ? os ? O1 O2]; subst. cbn [adaptive_axes dividing_axes map fst snd] in *.
    rewrite !cells_cons, axis_cells_divide by (simpl in *; lia). apply flat_map_ext; intros i. f_equal. now apply IH.
Qed.
