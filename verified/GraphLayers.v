(** LayerNorm and attention as graphs: they have all laws that Graph.v and GraphDerivative.v ask, for any cells.

    LayerNorm over classes of cells (positions that differ along the normalised axes only): the mean of a class, what is
    above it, the mean of squares, 1/sqrt of that and eps, times gamma, plus beta, which are read at a position of their
    own for each cell. Attention of queries, keys and values: scores q.k, scaled, softmax along keys, weights times v.
    So the sweep backwards through them gives their gradients, in x, gamma, beta, and in q, k, v, with eps > 0
    everywhere. *)
From Coq Require Import ZArith Reals List Bool Arith Lia Lra.
From Coquelicot Require Import Coquelicot.
From Specgrad Require Import Numbers Relation Window Readers Conv SmoothDerivative Graph GraphOperators GraphDerivative
  GraphSmooth.
Import ListNotations.
Local Open Scope R_scope.

Definition node_at p (op : operator (F := R)) args : node := {| op := op; args := args; place := p |}.

Section LayerNorm.
(** share: one over the number of cells of a class. spread o: where gamma and beta are read for cell o. *)
Variables (ps qs : list (list Z)) (class spread : list Z -> list Z) (share eps : R).
Hypothesis ps_distinct : NoDup ps.
Hypothesis qs_distinct : NoDup qs.
Hypothesis spread_inside : forall o, In o ps -> In (spread o) qs.
Hypothesis share_nonneg : 0 <= share.
Hypothesis eps_pos : 0 < eps.

Definition mean_node := linear_node reals ps ps (fun o t => if same (class t) (class o) then Some t else None)
  (fun _ _ => share).
Definition spread_node := linear_node reals ps [tt] (fun o _ => Some (spread o)) (fun _ _ => 1).
Definition root_node := pointwise_node reals (fun v => / sqrt (v + eps))
  (fun v => - / (2 * (v + eps) * sqrt (v + eps))).
(** 0: x, 1: gamma, 2: beta; 12 is the result. *)
Definition layer_norm : graph := [
  node_at 3 mean_node [0%nat];                           (* mean *)
  node_at 4 (sub_node reals) [0%nat; 3%nat];             (* x - mean *)
  node_at 5 (mul_node reals) [4%nat; 4%nat];             (* its square: one place read twice *)
  node_at 6 mean_node [5%nat];                           (* variance *)
  node_at 7 root_node [6%nat];                           (* 1 / sqrt(variance + eps) *)
  node_at 8 (mul_node reals) [4%nat; 7%nat];
  node_at 9 spread_node [1%nat];
  node_at 10 (mul_node reals) [8%nat; 9%nat];
  node_at 11 spread_node [2%nat];
  node_at 12 (add_node reals) [10%nat; 11%nat]].
Definition norm_cells p := match p with 1%nat | 2%nat => qs | _ => ps end.
Definition norm_places := seq 0 13.

Definition mean (x : tensor R) o := share * row_sum ps class x o.
Lemma mean_is x o : gather reals ps (fun o t => if same (class t) (class o) then Some t else None) (fun _ _ => share) x
  o = mean x o.
Proof.
  unfold mean, row_sum, gather. rewrite (sum_mul_l reals ps share). apply sum_ext; intros t _. simpl.
  destruct (same _ _); ring.
Qed.
(** Law 2 speaks of this: what the graph computes. *)
Theorem layer_norm_value x o : run layer_norm x 12%nat o =
  let above := fun i => x 0%nat i - mean (x 0%nat) i in
  above o * / sqrt (mean (fun i => above i * above i) o + eps) * x 1%nat (spread o) + x 2%nat (spread o).
Proof.
  set (G := gather reals ps (fun o t => if same (class t) (class o) then Some t else None) (fun _ _ => share)).
  assert (E : forall f i, G f i = mean f i) by (intros; apply mean_is).
  assert (V : G (fun i => (x 0%nat i - G (x 0%nat) i) * (x 0%nat i - G (x 0%nat) i)) o =
    mean (fun i => (x 0%nat i - mean (x 0%nat) i) * (x 0%nat i - mean (x 0%nat) i)) o).
  { assert (M : forall f g, (forall i, f i = g i) -> mean f o = mean g o).
    { intros f g H. unfold mean, row_sum. f_equal. apply sum_ext; intros j _. now rewrite H. }
    rewrite E. apply M. intros i. now rewrite E. }
  cbv beta zeta. rewrite <- V, <- (E (x 0%nat) o).
  change (run layer_norm x 12%nat o) with ((x 0%nat o - G (x 0%nat) o) *
    / sqrt (G (fun i => (x 0%nat i - G (x 0%nat) i) * (x 0%nat i - G (x 0%nat) i)) o + eps) *
    (1 * x 1%nat (spread o) + 0) + (1 * x 2%nat (spread o) + 0)). ring.
Qed.

Lemma mean_inside o t i : In o ps -> In t ps -> (if same (class t) (class o) then Some t else None) = Some i -> In i ps.
Proof. intros _ T. destruct (same _ _); [intros [= <-]; exact T | discriminate]. Qed.
Lemma spread_reads o t i : In o ps -> In t [tt] -> Some (spread o) = Some i -> In i qs.
Proof. intros O _ [= <-]. now apply spread_inside. Qed.

(** Law 1 of LayerNorm: of each of its nodes, so of all. *)
Theorem layer_norm_lawful : List.Forall (lawful reals norm_places norm_cells) layer_norm.
Proof.
  repeat (apply List.Forall_cons; [split; [simpl; tauto | split; [intros p P; simpl in *; intuition lia|]]|]);
    try apply List.Forall_nil; cbn [op args place node_at map norm_cells].
  all: lazymatch goal with
    | |- adjoint_law _ (sub_node _) _ _ => apply sub_node_adjoint
    | |- adjoint_law _ (mul_node _) _ _ => apply mul_node_adjoint
    | |- adjoint_law _ (add_node _) _ _ => apply add_node_adjoint
    | |- adjoint_law _ root_node _ _ => apply pointwise_node_adjoint
    | |- adjoint_law _ mean_node _ _ => apply (linear_node_adjoint reals); [exact ps_distinct | exact mean_inside]
    | |- adjoint_law _ spread_node _ _ => apply (linear_node_adjoint reals); [exact qs_distinct | exact spread_reads]
    end.
Qed.
Lemma mean_nonneg f o : (forall i, 0 <= f i) -> 0 <= mean f o.
Proof.
  intros N. apply Rmult_le_pos; [exact share_nonneg|]. unfold row_sum. generalize ps as l.
  induction l as [|p l IH]; simpl; [lra|]. specialize (N p). simpl in IH. destruct (same _ _); lra.
Qed.
(** Law 2 by limits, of LayerNorm everywhere. *)
Theorem layer_norm_smooth x : List.Forall (smooth_node norm_places norm_cells) (tape layer_norm x).
Proof.
  repeat (apply List.Forall_cons; [split; [intros p P; simpl in *; intuition lia|]|]); try apply List.Forall_nil;
    cbn [fst snd op args place node_at map norm_cells].
  all: lazymatch goal with
    | |- chain_rule (sub_node _) _ _ _ => apply sub_node_chain
    | |- chain_rule (mul_node _) _ _ _ => apply mul_node_chain
    | |- chain_rule (add_node _) _ _ _ => apply add_node_chain
    | |- chain_rule mean_node _ _ _ => apply linear_node_chain; exact mean_inside
    | |- chain_rule spread_node _ _ _ => apply linear_node_chain; exact spread_reads
    | |- _ => idtac
    end.
  apply pointwise_node_chain. intros i _. unfold arguments, after, write. cbn -[gather]. rewrite mean_is.
  set (v := mean _ i). assert (P : 0 < v + eps).
  { assert (0 <= v) by (apply mean_nonneg; intros j; apply Rle_0_sqr). lra. }
  eapply derive_at; [apply (is_derive_comp (fun v => / sqrt v) (fun v => v + eps));
    [now apply inverse_root_derivative|]|].
  - auto_derive; [exact I | reflexivity].
  - unfold scal; simpl; unfold mult; simpl. ring.
Qed.
(** Law 1 and Law 2: so the sweep through LayerNorm gives its gradient in x, gamma and beta. *)
Theorem layer_norm_gradient x dx gy :
  is_derive (fun h => inner reals ps gy (run layer_norm (line x (only reals [0%nat; 1%nat; 2%nat] dx) h) 12%nat)) 0
    (let back := sweep reals layer_norm x (seeds reals [12%nat] (fun _ => gy)) in
     inner reals ps (back 0%nat) (dx 0%nat) + inner reals qs (back 1%nat) (dx 1%nat) +
       inner reals qs (back 2%nat) (dx 2%nat)).
Proof.
  pose proof (vjp_gradient norm_places norm_cells ltac:(apply seq_NoDup) layer_norm [0%nat; 1%nat; 2%nat] [12%nat] x dx
    (fun _ => gy) layer_norm_lawful (layer_norm_smooth x)) as G.
  assert (N : NoDup [0%nat; 1%nat; 2%nat]) by (repeat constructor; simpl; intuition lia).
  specialize (G N ltac:(intros p P; simpl in *; intuition lia) ltac:(intros p P; simpl in *; intuition lia)).
  eapply derive_equal; [eapply is_derive_ext; [|exact G]|].
  - intros h. cbn [length seq sum fold_right nth norm_cells add zero reals].
    match goal with |- ?a = ?b => change (@eq R a b) end. apply Rplus_0_r.
  - cbv zeta. cbn [sum fold_right norm_cells add zero reals].
    match goal with |- ?a = ?b => change (@eq R a b) end. ring.
Qed.
End LayerNorm.

Section Attention.
(** Cells of queries, keys, values, scores and results; which cells a score and a result multiply, tap by tap; scores of
   one class are weighed against each other. A mask is a constant that is added to the scores: left out here. *)
Variables (qs ks vs ss os : list (list Z)) (D K : Type) (dims : list D) (keys : list K) (scale : R).
Variables (class : list Z -> list Z) (of_query of_key : list Z -> D -> option (list Z)).
Variables (of_weight of_value : list Z -> K -> option (list Z)).
Hypothesis qs_distinct : NoDup qs.
Hypothesis ks_distinct : NoDup ks.
Hypothesis vs_distinct : NoDup vs.
Hypothesis ss_distinct : NoDup ss.
Hypothesis query_inside : forall o t i, In o ss -> In t dims -> of_query o t = Some i -> In i qs.
Hypothesis key_inside : forall o t i, In o ss -> In t dims -> of_key o t = Some i -> In i ks.
Hypothesis weight_inside : forall o t i, In o os -> In t keys -> of_weight o t = Some i -> In i ss.
Hypothesis value_inside : forall o t i, In o os -> In t keys -> of_value o t = Some i -> In i vs.

Definition scores_node := contract_node reals ss dims of_query of_key.
Definition scale_node := pointwise_node reals (fun v => scale * v) (fun _ => scale).
Definition weights_node := softmax_node ss class.
Definition weighed_node := contract_node reals os keys of_weight of_value.
(** 0: queries, 1: keys, 2: values; 6 is the result. *)
Definition attention : graph := [
  node_at 3 scores_node [0%nat; 1%nat];
  node_at 4 scale_node [3%nat];
  node_at 5 weights_node [4%nat];
  node_at 6 weighed_node [5%nat; 2%nat]].
Definition attention_cells p := match p with 0%nat => qs | 1%nat => ks | 2%nat => vs | 6%nat => os | _ => ss end.
Definition attention_places := seq 0 7.

(** Law 1 of attention. *)
Theorem attention_lawful : List.Forall (lawful reals attention_places attention_cells) attention.
Proof.
  repeat (apply List.Forall_cons; [split; [simpl; tauto | split; [intros p P; simpl in *; intuition lia|]]|]);
    try apply List.Forall_nil; cbn [op args place node_at map attention_cells].
  - apply (contract_node_adjoint reals); assumption.
  - apply pointwise_node_adjoint.
  - apply softmax_node_adjoint.
  - apply (contract_node_adjoint reals); assumption.
Qed.
(** Law 2 by limits, of attention everywhere. *)
Theorem attention_smooth x : List.Forall (smooth_node attention_places attention_cells) (tape attention x).
Proof.
  repeat (apply List.Forall_cons; [split; [intros p P; simpl in *; intuition lia|]|]); try apply List.Forall_nil;
    cbn [fst snd op args place node_at map attention_cells].
  - apply contract_node_chain; assumption.
  - apply pointwise_node_chain. intros i _. auto_derive; [exact I | ring].
  - apply softmax_node_chain.
  - apply contract_node_chain; assumption.
Qed.
(** Law 1 and Law 2: so the sweep through attention gives its gradient in queries, keys and values. *)
Theorem attention_gradient x dx gy :
  is_derive (fun h => inner reals os gy (run attention (line x (only reals [0%nat; 1%nat; 2%nat] dx) h) 6%nat)) 0
    (let back := sweep reals attention x (seeds reals [6%nat] (fun _ => gy)) in
     inner reals qs (back 0%nat) (dx 0%nat) + inner reals ks (back 1%nat) (dx 1%nat) +
       inner reals vs (back 2%nat) (dx 2%nat)).
Proof.
  pose proof (vjp_gradient attention_places attention_cells ltac:(apply seq_NoDup) attention [0%nat; 1%nat; 2%nat]
    [6%nat]
    x dx (fun _ => gy) attention_lawful (attention_smooth x)) as G.
  assert (N : NoDup [0%nat; 1%nat; 2%nat]) by (repeat constructor; simpl; intuition lia).
  specialize (G N ltac:(intros p P; simpl in *; intuition lia) ltac:(intros p P; simpl in *; intuition lia)).
  eapply derive_equal; [eapply is_derive_ext; [|exact G]|].
  - intros h. cbn [length seq sum fold_right nth attention_cells add zero reals].
    match goal with |- ?a = ?b => change (@eq R a b) end. apply Rplus_0_r.
  - cbv zeta. cbn [sum fold_right attention_cells add zero reals].
    match goal with |- ?a = ?b => change (@eq R a b) end. ring.
Qed.
End Attention.
