(** The operators of this folder as nodes of graphs, over any commutative ring: each with its two laws.

    conv, conv_transpose, avg_pool and max_pool are those of Conv.v, AvgPool.v and MaxPool.v, their weights arguments
    like any other. Besides: every map that is linear in one tensor (`linear`: matrix products with constants, reshape,
    permute, pad, slice, broadcast, sums and means along axes), products of two tensors summed along axes (`contract`:
    attention's), functions of one cell (`pointwise`), and sums, differences and products of two tensors; two tensors
    joined are a sum of two linear maps. Graph.v makes of these laws those of every graph of them. Over the reals, and
    by limits, GraphSmooth.v. *)
From Coq Require Import ZArith List Bool Arith Lia Ring.
From Specgrad Require Import Numbers Relation Window Readers Conv AvgPool MaxPool Dual Graph.
Import ListNotations.
Local Open Scope nat_scope.

Section Operators.
Context {F : Type} (num : numbers F).
Add Ring numbers_ring : (laws num).
Local Infix "[+]" := (add num) (at level 50, left associativity).
Local Infix "[*]" := (mul num) (at level 40, left associativity).

(** conv reads x, weights and bias. *)
Definition conv_node (batch groups cin cout : Z) (w : list axis) : operator := {|
  value := fun x => conv num batch groups cin cout w (x 1) (x 2) (x 0);
  jvp := fun x dx => conv_jvp num batch groups cin cout w (x 1) (x 0) (dx 1) (dx 2) (dx 0);
  vjp := fun x gy k => match k with
    | 0 => conv_vjp_x num batch groups cin cout w (x 1) gy
    | 1 => conv_vjp_w num batch groups cin cout w (x 0) gy
    | _ => conv_vjp_b num batch groups cin cout w gy end |}.
Definition conv_transpose_node (batch groups cin cout : Z) (w : list axis) : operator := {|
  value := fun x => conv_transpose num batch groups cin cout w (x 1) (x 2) (x 0);
  jvp := fun x dx => conv_transpose_jvp num batch groups cin cout w (x 1) (x 0) (dx 1) (dx 2) (dx 0);
  vjp := fun x gy k => match k with
    | 0 => conv_transpose_vjp_x num batch groups cin cout w (x 1) gy
    | 1 => conv_transpose_vjp_w num batch groups cin cout w (x 0) gy
    | _ => conv_transpose_vjp_b num batch groups cin cout w gy end |}.
Definition avg_pool_node (d : divisor F) (w : list axis) : operator := {|
  value := fun x => avg_pool num (share num d w) w (x 0);
  jvp := fun _ dx => avg_pool num (share num d w) w (dx 0);
  vjp := fun _ gy _ => avg_pool_vjp num (share num d w) w gy |}.
Definition max_pool_node (less : F -> F -> bool) (w : list axis) : operator := {|
  value := fun x => max_pool num less w (x 0);
  jvp := fun x dx => max_pool_jvp num less w (x 0) (dx 0);
  vjp := fun x gy _ => max_pool_vjp num less w (x 0) gy |}.

(** y(o) = the sum over t of weight(o, t) * x(reads(o, t)), of constant weights. *)
Definition linear_node {T} (outs : list (list Z)) (taps : list T) reads (weight : list Z -> T -> F) : operator := {|
  value := fun x => gather num taps reads weight (x 0);
  jvp := fun _ dx => gather num taps reads weight (dx 0);
  vjp := fun _ gy _ => scatter num outs taps same reads weight gy |}.
(** y(i) = f(x(i)), with f' as the tangent's factor. *)
Definition pointwise_node (f f' : F -> F) : operator := {|
  value := fun x i => f (x 0 i);
  jvp := fun x dx i => f' (x 0 i) [*] dx 0 i;
  vjp := fun x gy _ i => gy i [*] f' (x 0 i) |}.
(** y(o) = the sum over t of x(one(o, t)) * z(other(o, t)): matrix products of two tensors, of attention too. *)
Definition picked {T} (reads : list Z -> T -> option (list Z)) (x : tensor F) o t :=
  match reads o t with Some i => x i | None => zero num end.
Definition contract_node {T} (outs : list (list Z)) (taps : list T) one other : operator := {|
  value := fun x => gather num taps one (picked other (x 1)) (x 0);
  jvp := fun x dx o => gather num taps one (picked other (x 1)) (dx 0) o [+]
    gather num taps other (picked one (x 0)) (dx 1) o;
  vjp := fun x gy k => match k with
    | 0 => scatter num outs taps same one (picked other (x 1)) gy
    | _ => scatter num outs taps same other (picked one (x 0)) gy end |}.
Definition add_node : operator := {|
  value := fun x i => x 0 i [+] x 1 i;
  jvp := fun _ dx i => dx 0 i [+] dx 1 i;
  vjp := fun _ gy _ => gy |}.
Definition sub_node : operator := {|
  value := fun x i => sub num (x 0 i) (x 1 i);
  jvp := fun _ dx i => sub num (dx 0 i) (dx 1 i);
  vjp := fun _ gy k i => match k with 0 => gy i | _ => opp num (gy i) end |}.
Definition mul_node : operator := {|
  value := fun x i => x 0 i [*] x 1 i;
  jvp := fun x dx i => x 0 i [*] dx 1 i [+] dx 0 i [*] x 1 i;
  vjp := fun x gy k i => gy i [*] match k with 0 => x 1 i | _ => x 0 i end |}.

(** Law 1 of each: its cotangents are the adjoint of its tangent. *)

Theorem conv_node_adjoint batch groups cin cout w : let W := conv_window batch groups cin cout w in
  adjoint_law num (conv_node batch groups cin cout w)
    [ins W; positions (weight_shape groups cin cout w); positions [cout]] (outs W).
Proof.
  intros W x dx gy. subst W. cbn [jvp conv_node conv_transpose_node]. rewrite conv_adjoint.
  cbn [length seq sum fold_right nth vjp conv_node conv_transpose_node]. ring.
Qed.
Theorem conv_transpose_node_adjoint batch groups cin cout w : let W := conv_window batch groups cin cout w in
  adjoint_law num (conv_transpose_node batch groups cin cout w)
    [outs W; positions (weight_shape groups cin cout w); positions [cin]] (ins W).
Proof.
  intros W x dx gy. subst W. cbn [jvp conv_node conv_transpose_node]. rewrite conv_transpose_adjoint.
  cbn [length seq sum fold_right nth vjp conv_node conv_transpose_node]. ring.
Qed.
Theorem avg_pool_node_adjoint d w : adjoint_law num (avg_pool_node d w) [ins w] (outs w).
Proof.
  intros x dx gy. cbn [jvp avg_pool_node]. rewrite avg_pool_adjoint.
  cbn [length seq sum fold_right nth vjp avg_pool_node max_pool_node]. ring.
Qed.
Theorem max_pool_node_adjoint less w : weak_order less -> adjoint_law num (max_pool_node less w) [ins w] (outs w).
Proof.
  intros O x dx gy. cbn [jvp max_pool_node]. rewrite max_pool_adjoint by exact O.
  cbn [length seq sum fold_right nth vjp avg_pool_node max_pool_node]. ring.
Qed.
Theorem linear_node_adjoint {T} outs (taps : list T) reads weight ins : NoDup ins ->
  (forall o t i, In o outs -> In t taps -> reads o t = Some i -> In i ins) ->
  adjoint_law num (linear_node outs taps reads weight) [ins] outs.
Proof.
  intros N I x dx gy. simpl. unfold inner. rewrite (adjoint num outs taps same reads weight ins same_spec I N). ring.
Qed.
Theorem contract_node_adjoint {T} outs (taps : list T) one other ins jns : NoDup ins -> NoDup jns ->
  (forall o t i, In o outs -> In t taps -> one o t = Some i -> In i ins) ->
  (forall o t i, In o outs -> In t taps -> other o t = Some i -> In i jns) ->
  adjoint_law num (contract_node outs taps one other) [ins; jns] outs.
Proof.
  intros N M I J x dx gy. cbn [jvp contract_node]. rewrite inner_plus. unfold inner at 1 2.
  rewrite (adjoint num outs taps same one _ ins same_spec I N), (adjoint num outs taps same other _ jns same_spec J M).
  cbn [length seq sum fold_right nth vjp contract_node]. unfold inner, sum. ring.
Qed.
Theorem pointwise_node_adjoint f f' ps : adjoint_law num (pointwise_node f f') [ps] ps.
Proof.
  intros x dx gy. simpl. unfold inner. transitivity (sum num ps (fun p => gy p [*] f' (x 0 p) [*] dx 0 p)); [|ring].
  apply sum_ext; intros; ring.
Qed.
Theorem add_node_adjoint ps : adjoint_law num add_node [ps; ps] ps.
Proof.
  intros x dx gy. simpl. unfold inner. transitivity (sum num ps (fun i => gy i [*] dx 0 i [+] gy i [*] dx 1 i)).
  - apply sum_ext; intros; ring.
  - rewrite sum_plus. ring.
Qed.
Theorem sub_node_adjoint ps : adjoint_law num sub_node [ps; ps] ps.
Proof.
  intros x dx gy. simpl. unfold inner. transitivity
    (sum num ps (fun i => gy i [*] dx 0 i [+] opp num (gy i) [*] dx 1 i)).
  - apply sum_ext; intros; ring.
  - rewrite sum_plus. ring.
Qed.
Theorem mul_node_adjoint ps : adjoint_law num mul_node [ps; ps] ps.
Proof.
  intros x dx gy. simpl. unfold inner.
  transitivity (sum num ps (fun i => gy i [*] x 1 i [*] dx 0 i [+] gy i [*] x 0 i [*] dx 1 i)).
  - apply sum_ext; intros; ring.
  - rewrite sum_plus. ring.
Qed.

(** Law 1, as it is executed: their cotangents look at their arguments alone. *)
Theorem nodes_read_arguments :
  (forall b g c d w, reads_arguments (conv_node b g c d w) 3) /\
  (forall b g c d w, reads_arguments (conv_transpose_node b g c d w) 3) /\
  (forall d w, reads_arguments (avg_pool_node d w) 1) /\ (forall less w, reads_arguments (max_pool_node less w) 1) /\
  (forall T outs (taps : list T) reads weight, reads_arguments (linear_node outs taps reads weight) 1) /\
  (forall T outs (taps : list T) one other, reads_arguments (contract_node outs taps one other) 2) /\
  (forall f f', reads_arguments (pointwise_node f f') 1) /\
  reads_arguments add_node 2 /\ reads_arguments sub_node 2 /\ reads_arguments mul_node 2.
Proof.
  repeat split; intros; intros x y gy E; cbn [vjp conv_node conv_transpose_node avg_pool_node max_pool_node linear_node
    contract_node pointwise_node add_node sub_node mul_node]; rewrite ?(E 0), ?(E 1) by auto; reflexivity.
Qed.
End Operators.
Arguments conv_node {F}. Arguments conv_transpose_node {F}. Arguments avg_pool_node {F}. Arguments max_pool_node {F}.
Arguments linear_node {F} num {T}. Arguments contract_node {F} num {T}. Arguments picked {F} num {T}.
Arguments pointwise_node {F}. Arguments add_node {F}. Arguments sub_node {F}.
Arguments mul_node {F}.

(** Law 2 of each: over dual numbers its coefficient is its tangent. *)
Section DualOperators.
Context {F : Type} (num : numbers F).
Add Ring numbers_ring2 : (laws num).
Local Notation pair_of x dx := (fun i => (x i, dx i)).

Lemma gather_ext {G} (n : numbers G) w f g (x y : list Z -> G) o : (forall o t, f o t = g o t) ->
  (forall i, x i = y i) ->
  gather_along n w f x o = gather_along n w g y o.
Proof.
  intros A B. apply sum_ext; intros t _. destruct (reads_all w o t); [now rewrite A, B | reflexivity].
Qed.
Lemma scatter_ext {G} (n : numbers G) w f g (x y : list Z -> G) i : (forall o t, f o t = g o t) ->
  (forall i, x i = y i) ->
  scatter_along n w f x i = scatter_along n w g y i.
Proof.
  intros A B. rewrite !scatter_along_scatter. apply sum_ext; intros o _. apply sum_ext; intros t _.
  destruct (reads_all w o t); [now rewrite A, B | reflexivity].
Qed.
Lemma winner_ext {G} (less : G -> G -> bool) w x y o : (forall i, x i = y i) -> winner less w x o = winner less w y o.
Proof.
  intros E. unfold winner, first_winner. generalize (@None (list Z)) as b. induction (cells w o) as [|i l IH]; intros b;
    [reflexivity|]. simpl. rewrite IH. f_equal. unfold choose. destruct b; [now rewrite !E | reflexivity].
Qed.

Theorem conv_node_dual batch groups cin cout w :
  dual_law (conv_node num batch groups cin cout w) (conv_node (dual num) batch groups cin cout w) 3.
Proof.
  intros x dx d D i. cbn [value jvp conv_node]. rewrite <- conv_dual. unfold conv. f_equal; [now apply D; auto|].
  apply gather_ext; [|intros j; now apply D; auto]. intros o t. unfold along. now apply D; auto.
Qed.
Theorem conv_transpose_node_dual batch groups cin cout w :
  dual_law (conv_transpose_node num batch groups cin cout w) (conv_transpose_node (dual num) batch groups cin cout w) 3.
Proof.
  intros x dx d D i. cbn [value jvp conv_transpose_node]. rewrite <- conv_transpose_dual. unfold conv_transpose.
  f_equal; [now apply D; auto|]. apply scatter_ext; [|intros j; now apply D; auto]. intros o t. unfold along.
  now apply D; auto.
Qed.
(** Law 2: the dual-number divisor is the number, without a change. *)
Definition dual_divisor (d : divisor F) : divisor (F * F) :=
  match d with Padded => Padded | Inside => Inside | By v => By (v, zero num) end.
Lemma number_dual n : number (dual num) n = (number num n, zero num).
Proof.
  unfold number. rewrite <- (sum_zero num (repeat tt n)).
  exact (sum_dual num (repeat tt n) (fun _ => one num) (fun _ => zero num)).
Qed.
Lemma share_dual d w o : share (dual num) (dual_divisor d) w o = (share num d w o, zero num).
Proof.
  destruct d as [| |v]; simpl; unfold share_of; try reflexivity.
  - destruct (count counted w o); [reflexivity|]. cbn [div dual]. now rewrite number_dual.
  - destruct (count inside w o); [reflexivity|]. cbn [div dual]. now rewrite number_dual.
Qed.
Theorem avg_pool_node_dual d w : dual_law (avg_pool_node num d w) (avg_pool_node (dual num) (dual_divisor d) w) 1.
Proof.
  intros x dx e D i. cbn [value jvp avg_pool_node]. rewrite <- avg_pool_dual. unfold avg_pool. apply gather_ext.
  - intros o _. now rewrite share_dual.
  - intros j. now apply D; auto.
Qed.
Theorem max_pool_node_dual less w :
  dual_law (max_pool_node num less w) (max_pool_node (dual num) (fun p q => less (fst p) (fst q)) w) 1.
Proof.
  intros x dx d D i. cbn [value jvp max_pool_node]. rewrite <- max_pool_dual. unfold max_pool, take.
  assert (E : forall j, d 0 j = both (x 0) (dx 0) j) by (intros j; now apply D; auto).
  rewrite (winner_ext _ _ _ _ _ E). destruct (winner _ _ _ _); [apply E | reflexivity].
Qed.
Theorem linear_node_dual {T} outs (taps : list T) reads weight :
  dual_law (linear_node num outs taps reads weight)
    (linear_node (dual num) outs taps reads (fun o t => (weight o t, zero num))) 1.
Proof.
  intros x dx d D i. cbn [value jvp linear_node]. unfold gather. rewrite <- sum_dual. apply sum_ext; intros t _.
  unfold both.
  destruct (reads i t) as [j|]; [|reflexivity]. rewrite (D 0 j) by auto. cbn. unfold dual_mul. simpl. f_equal. ring.
Qed.
Theorem contract_node_dual {T} outs (taps : list T) one other :
  dual_law (contract_node num outs taps one other) (contract_node (dual num) outs taps one other) 2.
Proof.
  intros x dx d D o. cbn [value jvp contract_node]. unfold gather. rewrite <- sum_plus, <- sum_dual.
  apply sum_ext; intros t _.
  unfold both, picked. destruct (one o t) as [i|], (other o t) as [j|]; try rewrite (D 0 i) by auto;
    try rewrite (D 1 j) by auto; cbn; unfold dual_mul; simpl; f_equal; ring.
Qed.
(** Law 2: what a function of one cell is over dual numbers is a definition: its value, and its factor times the
    change. *)
Definition dual_function (f f' : F -> F) (p : F * F) : F * F := (f (fst p), mul num (f' (fst p)) (snd p)).
Theorem pointwise_node_dual f f' f'' :
  dual_law (pointwise_node num f f') (pointwise_node (dual num) (dual_function f f') f'') 1.
Proof. intros x dx d D i. cbn. unfold dual_function. now rewrite D by auto. Qed.
Theorem add_node_dual : dual_law (add_node num) (add_node (dual num)) 2.
Proof. intros x dx d D i. cbn. unfold dual_add. now rewrite !D by auto. Qed.
Theorem sub_node_dual : dual_law (sub_node num) (sub_node (dual num)) 2.
Proof. intros x dx d D i. cbn. unfold dual_sub. now rewrite !D by auto. Qed.
Theorem mul_node_dual : dual_law (mul_node num) (mul_node (dual num)) 2.
Proof. intros x dx d D i. cbn. unfold dual_mul. now rewrite !D by auto. Qed.
End DualOperators.
