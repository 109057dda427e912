(** Which operators have the chain rule over the reals, and where: what GraphDerivative.v asks of each node.

    Everywhere: conv and conv_transpose (in x, weights and bias at once), avg_pool, linear maps, sums, differences and
    products, smooth maxima, softmax, and functions of one cell that have a derivative, as exp, tanh and sigmoid have.
    relu where no cell is 0; max_pool where in every window one tap is greater than all others. LayerNorm is a graph of
    these: means, differences, products and 1/sqrt of what is positive. *)
From Coq Require Import ZArith Reals List Bool Arith Lia Lra.
From Coquelicot Require Import Coquelicot.
From Specgrad Require Import Numbers Relation Window Readers Conv AvgPool MaxPool SmoothMax SmoothDerivative
  MaxDerivative.
From Specgrad Require Import Graph GraphOperators GraphDerivative.
Import ListNotations.
Local Open Scope R_scope.

Lemma derive_plus (f g : R -> R) a b : is_derive f 0 a -> is_derive g 0 b -> is_derive (fun h => f h + g h) 0 (a + b).
Proof. intros A B. exact (is_derive_plus f g 0 a b A B). Qed.
Lemma derive_mult (f g : R -> R) a b : is_derive f 0 a -> is_derive g 0 b ->
  is_derive (fun h => f h * g h) 0 (a * g 0 + f 0 * b).
Proof. intros A B. apply (is_derive_mult f g 0 a b A B). intros; apply Rmult_comm. Qed.
Lemma derive_const (c : R) : is_derive (fun _ : R => c) 0 0.
Proof. exact (is_derive_const (K := R_AbsRing) (V := R_NormedModule) c 0). Qed.
Lemma derive_equal (f : R -> R) a b : is_derive f 0 a -> a = b -> is_derive f 0 b.
Proof. now intros H <-. Qed.

Lemma derive_at (f : R -> R) v a b : is_derive f v a -> a = b -> is_derive f v b.
Proof. now intros H <-. Qed.

(** What windows gather and scatter along, weights and cells both moving. *)
Lemma gather_moves w (f : R -> list Z -> list Z -> R) df (x : R -> tensor R) dx o : In o (outs w) ->
  (forall t, In t (taps w) -> is_derive (fun h => f h o t) 0 (df o t)) -> moves x dx (ins w) ->
  is_derive (fun h => gather_along reals w (f h) (x h) o) 0
    (gather_along reals w (f 0) dx o + gather_along reals w df (x 0) o).
Proof.
  intros O D M. unfold gather_along, gather. change Rplus with (add reals). rewrite <- sum_plus.
  apply (sum_derivative (taps w) (fun t h => match reads_all w o t with Some i => f h o t * x h i | None => 0 end)).
  intros t T. destruct (reads_all w o t) as [i|] eqn:E.
  - eapply derive_equal; [apply derive_mult; [apply D, T | apply M; eapply reads_all_inside; eauto]|]. simpl. ring.
  - eapply derive_equal; [apply derive_const | simpl; ring].
Qed.
Lemma scatter_moves w (f : R -> list Z -> list Z -> R) df (x : R -> tensor R) dx i :
  (forall o t, In o (outs w) -> In t (taps w) -> is_derive (fun h => f h o t) 0 (df o t)) -> moves x dx (outs w) ->
  is_derive (fun h => scatter_along reals w (f h) (x h) i) 0
    (scatter_along reals w (f 0) dx i + scatter_along reals w df (x 0) i).
Proof.
  intros D M. apply (is_derive_ext (fun h => scatter reals (outs w) (taps w) same (reads_all w) (f h) (x h) i)).
  { intros h. symmetry. apply scatter_along_scatter. }
  rewrite !scatter_along_scatter. unfold scatter. change Rplus with (add reals). rewrite <- sum_plus.
  apply (sum_derivative (outs w) (fun o h => sum reals (taps w) (fun t =>
    match reads_all w o t with Some j => if same j i then f h o t * x h o else 0 | None => 0 end))). intros o O.
  rewrite <- sum_plus. apply (sum_derivative (taps w) (fun t h =>
    match reads_all w o t with Some j => if same j i then f h o t * x h o else 0 | None => 0 end)). intros t T.
  destruct (reads_all w o t) as [j|]; [destruct (same j i)|].
  - eapply derive_equal; [apply derive_mult; [now apply D | now apply M]|]. simpl. ring.
  - eapply derive_equal; [apply derive_const | simpl; ring].
  - eapply derive_equal; [apply derive_const | simpl; ring].
Qed.


(** Law 2 by limits, of convolutions in x, weights and bias at once. *)
Theorem conv_node_chain batch groups cin cout w a : let W := conv_window batch groups cin cout w in
  chain_rule (conv_node reals batch groups cin cout w)
    [ins W; positions (weight_shape groups cin cout w); positions [cout]] (outs W) a.
Proof.
  intros W x dx E M o O. subst a. pose proof (M 0%nat ltac:(simpl; lia)) as X.
  pose proof (M 1%nat ltac:(simpl; lia)) as K.
  pose proof (M 2%nat ltac:(simpl; lia)) as B. cbn [nth] in X, K, B. cbn [value jvp conv_node]. unfold conv_jvp, conv.
  eapply derive_equal.
  - apply derive_plus; [apply B; eapply channel_of_out; exact O|].
    apply (gather_moves W (fun h => along (x h 1%nat)) (along (dx 1%nat)) (fun h => x h 0%nat) (dx 0%nat) o O);
      [|exact X].
    intros t T. unfold along. apply K. eapply weight_at_in; [exact O | exact T].
  - unfold nothing. fold W. simpl. ring.
Qed.
Theorem conv_transpose_node_chain batch groups cin cout w a : let W := conv_window batch groups cin cout w in
  chain_rule (conv_transpose_node reals batch groups cin cout w)
    [outs W; positions (weight_shape groups cin cout w); positions [cin]] (ins W) a.
Proof.
  intros W x dx E M i I. subst a. pose proof (M 0%nat ltac:(simpl; lia)) as X.
  pose proof (M 1%nat ltac:(simpl; lia)) as K.
  pose proof (M 2%nat ltac:(simpl; lia)) as B. cbn [nth] in X, K, B. cbn [value jvp conv_transpose_node].
  unfold conv_transpose_jvp, conv_transpose. eapply derive_equal.
  - apply derive_plus; [apply B; revert I; unfold W, ins, conv_window; rewrite !in_positions; cbn [map]; intros I;
      inversion_clear I as [|? ? ? ? _ I']; inversion_clear I' as [|? ? ? ? C _]; simpl; repeat constructor; apply C|].
    apply (scatter_moves W (fun h => along (x h 1%nat)) (along (dx 1%nat)) (fun h => x h 0%nat) (dx 0%nat) i);
      [|exact X].
    intros o t O T. unfold along. apply K. eapply weight_at_in; [exact O | exact T].
  - unfold nothing. fold W. simpl. ring.
Qed.
(** Law 2 by limits, of averages and linear maps. *)
Theorem avg_pool_node_chain d w a : chain_rule (avg_pool_node reals d w) [ins w] (outs w) a.
Proof.
  intros x dx E M o O. subst a. pose proof (M 0%nat ltac:(simpl; lia)) as X. cbn [nth] in X.
  cbn [value jvp avg_pool_node]. unfold avg_pool. eapply derive_equal.
  - apply (gather_moves w (fun _ o _ => share reals d w o) (fun _ _ => 0) (fun h => x h 0%nat) (dx 0%nat) o O);
      [|exact X].
    intros. apply derive_const.
  - rewrite (gather_cells reals w _ o 0). simpl. ring.
Qed.
Theorem linear_node_chain {T} outs (taps : list T) reads weight ins a :
  (forall o t i, In o outs -> In t taps -> reads o t = Some i -> In i ins) ->
  chain_rule (linear_node reals outs taps reads weight) [ins] outs a.
Proof.
  intros I x dx E M o O. pose proof (M 0%nat ltac:(simpl; lia)) as X. cbn [nth] in X. cbn [value jvp linear_node].
  apply (sum_derivative taps (fun t h => match reads o t with Some i => weight o t * x h 0%nat i | None => 0 end)).
  intros t T'. destruct (reads o t) as [i|] eqn:R; [|apply derive_const].
  apply (is_derive_scal (fun h => x h 0%nat i) 0 (weight o t)). apply X. eauto.
Qed.
Theorem contract_node_chain {T} outs (taps : list T) one other ins jns a :
  (forall o t i, In o outs -> In t taps -> one o t = Some i -> In i ins) ->
  (forall o t i, In o outs -> In t taps -> other o t = Some i -> In i jns) ->
  chain_rule (contract_node reals outs taps one other) [ins; jns] outs a.
Proof.
  intros I J x dx E M o O. subst a. pose proof (M 0%nat ltac:(simpl; lia)) as X.
  pose proof (M 1%nat ltac:(simpl; lia)) as Y.
  cbn [nth] in X, Y. cbn [value jvp contract_node]. unfold gather. rewrite <- sum_plus.
  apply (sum_derivative taps (fun t h => match one o t with
    Some i => picked reals other (x h 1%nat) o t * x h 0%nat i | None => 0 end)). intros t T'. unfold picked.
  destruct (one o t) as [i|] eqn:A, (other o t) as [j|] eqn:B.
  - eapply derive_equal; [apply derive_mult; [apply Y; eauto | apply X; eauto]|]. simpl. ring.
  - eapply derive_equal; [apply derive_mult; [apply derive_const | apply X; eauto]|]. simpl. ring.
  - eapply derive_equal; [apply derive_const | simpl; ring].
  - eapply derive_equal; [apply derive_const | simpl; ring].
Qed.
(** Law 2 by limits, of functions of one cell where they have the derivative f', and of sums, differences, products. *)
Theorem pointwise_node_chain f f' ps a : (forall i, In i ps -> is_derive f (a 0%nat i) (f' (a 0%nat i))) ->
  chain_rule (pointwise_node reals f f') [ps] ps a.
Proof.
  intros D x dx E M i I. subst a. pose proof (M 0%nat ltac:(simpl; lia) i I) as X. cbn [value jvp pointwise_node].
  eapply derive_equal; [apply (is_derive_comp f (fun h => x h 0%nat i)); [now apply D | exact X]|].
  unfold scal; simpl; unfold mult; simpl. ring.
Qed.
Theorem add_node_chain ps a : chain_rule (add_node reals) [ps; ps] ps a.
Proof.
  intros x dx E M i I. exact (derive_plus _ _ _ _ (M 0%nat ltac:(simpl; lia) i I) (M 1%nat ltac:(simpl; lia) i I)).
Qed.
Theorem sub_node_chain ps a : chain_rule (sub_node reals) [ps; ps] ps a.
Proof.
  intros x dx E M i I. exact (is_derive_minus _ _ _ _ _ (M 0%nat ltac:(simpl; lia) i I)
    (M 1%nat ltac:(simpl; lia) i I)).
Qed.
Theorem mul_node_chain ps a : chain_rule (mul_node reals) [ps; ps] ps a.
Proof.
  intros x dx E M i I. subst a. eapply derive_equal.
  - exact (derive_mult _ _ _ _ (M 0%nat ltac:(simpl; lia) i I) (M 1%nat ltac:(simpl; lia) i I)).
  - simpl. ring.
Qed.

(** --- functions of one cell --- *)
Definition relu v := Rmax 0 v.
Definition relu_slope v := if Rlt_dec 0 v then 1 else 0.
Definition sigmoid v := / (1 + exp (- v)).
(** Law 2 by limits: relu where it is not at its kink, exp, tanh and sigmoid everywhere, 1/sqrt where it is defined. *)
Theorem relu_derivative v : v <> 0 -> is_derive relu v (relu_slope v).
Proof.
  intros N. unfold relu, relu_slope. destruct (Rlt_dec 0 v) as [P|P].
  - apply (is_derive_ext_loc (fun y => y)); [|apply (is_derive_id (K := R_AbsRing))].
    exists (mkposreal _ P). intros y Y. change (Rabs (y - v) < v) in Y. rewrite Rmax_right; [reflexivity|].
    apply Rabs_lt_between in Y. lra.
  - assert (Q : 0 < - v) by lra. apply (is_derive_ext_loc (fun _ => 0)).
    + exists (mkposreal _ Q). intros y Y. change (Rabs (y - v) < - v) in Y. rewrite Rmax_left; [reflexivity|].
      apply Rabs_lt_between in Y. lra.
    + exact (is_derive_const (K := R_AbsRing) (V := R_NormedModule) 0 v).
Qed.
Theorem exp_derivative v : is_derive exp v (exp v).
Proof. apply is_derive_exp. Qed.
Theorem sigmoid_derivative v : is_derive sigmoid v (sigmoid v * (1 - sigmoid v)).
Proof.
  pose proof (exp_pos (- v)). unfold sigmoid. auto_derive; [lra|]. field. lra.
Qed.
Theorem tanh_derivative v : is_derive tanh v (1 - tanh v * tanh v).
Proof.
  pose proof (exp_pos v). pose proof (exp_pos (- v)). unfold tanh, sinh, cosh. auto_derive; [lra|]. field. lra.
Qed.
Theorem inverse_root_derivative v : 0 < v -> is_derive (fun v => / sqrt v) v (- / (2 * v * sqrt v)).
Proof.
  intros P. pose proof (sqrt_lt_R0 v P) as S. auto_derive; [lra|]. pose proof (sqrt_sqrt v ltac:(lra)) as Q.
  replace (2 * v * sqrt v) with (2 * (sqrt v * sqrt v) * sqrt v) by (rewrite Q; ring). field. lra.
Qed.

(** --- max_pool away from ties --- *)
Lemma stays_below (f g : R -> R) (a b : R) : is_derive f 0 a -> is_derive g 0 b -> f 0 < g 0 ->
  locally 0 (fun h => f h < g h).
Proof.
  intros A B L. assert (D : is_derive (fun h => g h - f h) 0 (b - a)) by exact (is_derive_minus g f 0 b a B A).
  assert (C : continuous (fun h => g h - f h) 0).
  { apply (ex_derive_continuous (K := R_AbsRing) (V := R_NormedModule)). eexists. exact D. }
  assert (P : 0 < g 0 - f 0) by lra. specialize (C (fun y => 0 < y) (open_gt 0 (g 0 - f 0) P)).
  revert C. unfold filtermap. apply filter_imp. intros h H. lra.
Qed.
Lemma alone_wins (y : tensor R) l i : In i l -> (forall j, In j l -> j <> i -> y j < y i) ->
  first_winner less_R y l = Some i.
Proof.
  intros I S. destruct (first_winner less_R y l) as [k|] eqn:E.
  - pose proof (first_winner_greatest less_R y l k i reals_ordered E I) as G.
    pose proof (first_winner_in less_R y l k reals_ordered E) as K.
    destruct (list_eq_dec Z.eq_dec k i) as [->|N]; auto. specialize (S k K N). apply not_less_R in G. lra.
  - apply first_winner_none in E. subst l. destruct I.
Qed.
(** In every window that is not empty, one tap is greater than all others. *)
Definition no_tie w (x : tensor R) := forall o, In o (outs w) ->
  cells w o = [] \/ exists i, In i (cells w o) /\ forall j, In j (cells w o) -> j <> i -> x j < x i.
(** Law 2 by limits, of max_pool where it meets no tie. *)
Theorem max_pool_node_chain w a : no_tie w (a 0%nat) -> chain_rule (max_pool_node reals less_R w) [ins w] (outs w) a.
Proof.
  intros T x dx E M o O. subst a. pose proof (M 0%nat ltac:(simpl; lia)) as X. cbn [nth] in X.
  cbn [value jvp max_pool_node]. unfold max_pool_jvp, max_pool, take. destruct (T o O) as [Z | (i & I & S)].
  - assert (W : forall y : tensor R, winner less_R w y o = None) by (intros y; unfold winner; now rewrite Z).
    rewrite W. apply (is_derive_ext (fun _ => 0)); [intros h; now rewrite W | apply derive_const].
  - assert (Inside : forall j, In j (cells w o) -> In j (ins w)).
    { intros j J. apply in_cells in J as (t & _ & J). eapply reads_all_inside; eauto. }
    unfold winner at 2. rewrite (alone_wins _ _ i I S).
    apply (is_derive_ext_loc (fun h => x h 0%nat i)); [|now apply X, Inside].
    assert (L : locally 0 (fun h => forall j, In j (cells w o) -> j <> i -> x h 0%nat j < x h 0%nat i)).
    { apply (for_all_taps (cells w o) (fun j h => j <> i -> x h 0%nat j < x h 0%nat i)). intros j J.
      destruct (list_eq_dec Z.eq_dec j i) as [->|N]; [apply filter_forall; now intros h C|].
      generalize (stays_below (fun h => x h 0%nat j) (fun h => x h 0%nat i) _ _ (X j (Inside j J)) (X i (Inside i I))
        (S j J N)). apply filter_imp. auto. }
    revert L. apply filter_imp. intros h H. unfold winner. now rewrite (alone_wins _ _ i I H).
Qed.

(** --- smooth maxima and softmax --- *)
Definition smooth_max_pool_node zero_padded beta w : operator (F := R) := {|
  value := fun x => smooth_max_pool zero_padded beta w (x 0%nat);
  jvp := fun x dx => smooth_max_pool_jvp zero_padded beta w (x 0%nat) (dx 0%nat);
  vjp := fun x gy _ => smooth_max_pool_vjp zero_padded beta w (x 0%nat) gy |}.
(** Law 1 of smooth maxima as nodes. *)
Theorem smooth_max_pool_node_adjoint z beta w : adjoint_law reals (smooth_max_pool_node z beta w) [ins w] (outs w).
Proof.
  intros x dx gy. cbn [jvp smooth_max_pool_node]. rewrite smooth_max_pool_adjoint.
  cbn [length seq sum fold_right nth vjp smooth_max_pool_node]. simpl. ring.
Qed.
Lemma smooth_max_moves {A} beta (l : list A) (v : R -> A -> R) d : beta <> 0 -> l <> [] ->
  (forall a, In a l -> is_derive (fun h => v h a) 0 (d a)) ->
  is_derive (fun h => smooth_max beta (map (v h) l)) 0 (total l (fun a => softmax beta (map (v 0) l) (v 0 a) * d a)).
Proof.
  intros B N D. unfold smooth_max.
  assert (P : 0 < exps beta (map (v 0) l)) by (apply exps_pos; intros H; apply map_eq_nil in H; contradiction).
  assert (S : is_derive (fun h => exps beta (map (v h) l)) 0 (total l (fun a => exp (beta * v 0 a) * (beta * d a)))).
  { apply (is_derive_ext (fun h => total l (fun a => exp (beta * v h a)))).
    { intros h. unfold exps. now rewrite total_map. }
    apply (sum_derivative l (fun a h => exp (beta * v h a))). intros a I. eapply derive_equal.
    - apply (is_derive_comp exp (fun h => beta * v h a)); [apply is_derive_exp|].
      apply (is_derive_scal (fun h => v h a) 0 beta). now apply D.
    - unfold scal; simpl; unfold mult; simpl. ring. }
  eapply derive_equal.
  - apply (is_derive_comp (fun s => ln s / beta) (fun h => exps beta (map (v h) l))); [|exact S].
    auto_derive; [exact P | reflexivity].
  - unfold scal; simpl; unfold mult; simpl. rewrite Rmult_comm, total_mul_l. apply total_ext. intros a _.
    unfold softmax. field. split; [lra | exact B].
Qed.
(** Law 2 by limits, of smooth maxima. *)
Theorem smooth_max_pool_node_chain z beta w a : beta <> 0 ->
  (forall o, In o (outs w) -> tap_values z (a 0%nat) w o <> []) ->
  chain_rule (smooth_max_pool_node z beta w) [ins w] (outs w) a.
Proof.
  intros B N x dx E M o O. subst a. pose proof (M 0%nat ltac:(simpl; lia)) as X. cbn [nth] in X. specialize (N o O).
  cbn [value jvp smooth_max_pool_node]. rewrite jvp_is_total. unfold smooth_max_pool, tap_values, tap_pairs in *.
  assert (Q : forall l : list Z -> R, l = l) by auto. destruct z; rewrite total_map; simpl fst; simpl snd.
  - apply (smooth_max_moves beta (taps w) (fun h => tap_value (x h 0%nat) w o) (tap_value (dx 0%nat) w o) B).
    + intros H. apply N. now rewrite H.
    + intros t T. unfold tap_value. destruct (reads_all w o t) as [i|] eqn:R; [|apply derive_const].
      apply X. eapply reads_all_inside; eauto.
  - apply (smooth_max_moves beta (cells w o) (fun h => x h 0%nat) (dx 0%nat) B).
    + intros H. apply N. now rewrite H.
    + intros i I. apply X. apply in_cells in I as (t & _ & I). eapply reads_all_inside; eauto.
Qed.

(** softmax over cells of one class: positions that differ along the axis only. *)
Section Softmax.
Variables (ps : list (list Z)) (class : list Z -> list Z).
Definition row_sum (f : tensor R) (o : list Z) : R :=
  sum reals ps (fun j => if same (class j) (class o) then f j else 0).
Definition softmax_of (x : tensor R) (o : list Z) : R := exp (x o) / row_sum (fun j => exp (x j)) o.
Definition softmax_node : operator (F := R) := {|
  value := fun x => softmax_of (x 0%nat);
  jvp := fun x dx o => let y := softmax_of (x 0%nat) in y o * (dx 0%nat o - row_sum (fun j => y j * dx 0%nat j) o);
  vjp := fun x gy _ i => let y := softmax_of (x 0%nat) in y i * (gy i - row_sum (fun o => gy o * y o) i) |}.

Lemma same_sym a b : same a b = same b a.
Proof.
  destruct (same a b) eqn:E, (same b a) eqn:E'; auto.
  - apply same_spec in E. subst. rewrite (proj2 (same_spec b b) eq_refl) in E'. discriminate.
  - apply same_spec in E'. subst. rewrite (proj2 (same_spec a a) eq_refl) in E. discriminate.
Qed.
Lemma row_sum_swap (f g : tensor R) :
  sum reals ps (fun o => f o * row_sum g o) = sum reals ps (fun i => row_sum f i * g i).
Proof.
  unfold row_sum. transitivity (sum reals ps (fun o =>
    sum reals ps (fun j => if same (class j) (class o) then f o * g j else 0))).
  - apply sum_ext; intros o _. rewrite (sum_mul_l reals). apply sum_ext; intros j _. simpl. destruct (same _ _); ring.
  - rewrite (sum_swap reals). apply sum_ext; intros j _. rewrite (sum_mul_r reals). apply sum_ext; intros o _.
    rewrite same_sym. simpl. destruct (same _ _); ring.
Qed.
Lemma sum_minus (l : list (list Z)) (f g : tensor R) : sum reals l (fun o => f o - g o) = sum reals l f - sum reals l g.
Proof. induction l as [|p l IH]; simpl in *; [|rewrite IH]; ring. Qed.
(** Law 1 of softmax. *)
Theorem softmax_node_adjoint : adjoint_law reals softmax_node [ps] ps.
Proof.
  intros x dx gy. cbn [length seq nth jvp vjp softmax_node]. set (y := softmax_of (x 0%nat)). set (d := dx 0%nat).
  transitivity (sum reals ps (fun o => gy o * y o * d o - gy o * y o * row_sum (fun j => y j * d j) o)).
  { apply sum_ext; intros o _. simpl. ring. }
  rewrite sum_minus, (row_sum_swap (fun o => gy o * y o) (fun j => y j * d j)), <- sum_minus.
  transitivity (inner reals ps (fun i => y i * (gy i - row_sum (fun o => gy o * y o) i)) d); [|subst d y; simpl; ring].
  apply sum_ext; intros i _. simpl. ring.
Qed.
Lemma row_sum_class f i o : same (class i) (class o) = true -> row_sum f i = row_sum f o.
Proof. intros E. apply same_spec in E. unfold row_sum. now rewrite E. Qed.
Lemma row_sum_exp_pos x o : In o ps -> 0 < row_sum (fun j => exp (x j)) o.
Proof.
  intros O. unfold row_sum. assert (N : forall l : list (list Z),
    0 <= sum reals l (fun j => if same (class j) (class o) then exp (x j) else 0)).
  { induction l as [|p l IH]; simpl; [lra|]. pose proof (exp_pos (x p)). destruct (same _ _); lra. }
  induction ps as [|p l IH]; [destruct O|]. simpl. pose proof (exp_pos (x p)). pose proof (N l). destruct O as [->|O].
  - rewrite (proj2 (same_spec _ _) eq_refl). simpl in *. lra.
  - specialize (IH O). simpl in *. destruct (same _ _); lra.
Qed.
(** Law 2 by limits, of softmax. *)
Theorem softmax_node_chain a : chain_rule softmax_node [ps] ps a.
Proof.
  intros x dx E M o O. subst a. pose proof (M 0%nat ltac:(simpl; lia)) as X. cbn [nth] in X.
  cbn [value jvp softmax_node]. unfold softmax_of at 1.
  assert (De : forall j, In j ps -> is_derive (fun h => exp (x h 0%nat j)) 0 (exp (x 0 0%nat j) * dx 0%nat j)).
  { intros j J. eapply derive_equal; [apply (is_derive_comp exp (fun h => x h 0%nat j));
      [apply is_derive_exp | now apply X]|].
    unfold scal; simpl; unfold mult; simpl. ring. }
  assert (Ds : is_derive (fun h => row_sum (fun j => exp (x h 0%nat j)) o) 0
    (row_sum (fun j => exp (x 0 0%nat j) * dx 0%nat j) o)).
  { apply (sum_derivative ps (fun j h => if same (class j) (class o) then exp (x h 0%nat j) else 0)). intros j J.
    destruct (same _ _); [now apply De | apply derive_const]. }
  pose proof (row_sum_exp_pos (x 0 0%nat) o O) as P. set (s := row_sum (fun j => exp (x 0 0%nat j)) o) in *.
  assert (Q : row_sum (fun j => softmax_of (x 0 0%nat) j * dx 0%nat j) o =
    row_sum (fun j => exp (x 0 0%nat j) * dx 0%nat j) o / s).
  { unfold row_sum at 1 2. unfold Rdiv. rewrite (sum_mul_r reals). apply sum_ext; intros j _. simpl.
    destruct (same (class j) (class o)) eqn:C; [|ring]. unfold softmax_of. rewrite (row_sum_class _ j o C). fold s.
    field. lra. }
  eapply derive_equal; [apply (is_derive_div _ _ 0 _ _ (De o O) Ds); unfold s in P; lra|]. rewrite Q. unfold softmax_of.
  fold s.
  match goal with |- ?a = ?b => change (@eq R a b) end. field. lra.
Qed.
End Softmax.
