(** conv and conv_transpose of any rank, batch, groups, stride, dilation and padding: values, tangents, cotangents.
    Tensors are functions of positions: x of batch :: channel :: cell, weights of output channel :: input channel of the
    group :: tap, bias of [channel]. The batch is an axis that every position reads at its own place, channels are a
    grouped axis: then a convolution gathers along one window. *)
From Coq Require Import ZArith List Bool Lia Ring.
From Specgrad Require Import Numbers Relation Window Readers.
Import ListNotations.
Open Scope Z_scope.

Definition mapped n := Strided n 1 1 1 0 0 n.
Definition channel (p : list Z) := match p with _ :: c :: _ => [c] | _ => [] end.
Definition weight_at (o t : list Z) := match o, t with _ :: c :: _, _ :: ts => c :: ts | _, _ => [] end.

Section Conv.
Context {F : Type} (num : numbers F).
Add Ring numbers_ring : (laws num).
Local Infix "[+]" := (add num) (at level 50, left associativity).
Local Infix "[*]" := (mul num) (at level 40, left associativity).
Definition inner (ps : list (list Z)) (a b : list Z -> F) := sum num ps (fun p => a p [*] b p).
Definition nothing (p : list Z) : F := zero num.

Variables (batch groups cin cout : Z) (w : list axis).
Definition conv_window := mapped batch :: Grouped groups cin cout :: w.
Definition weight_shape := cout :: cin / groups :: map kernel w.
Definition along (weights : list Z -> F) o t := weights (weight_at o t).

(** y[o, p] = b[o] + sum over i, t of w[o, i, t] * x[i, s*p + e*t - lo] *)
Definition conv weights bias x o := bias (channel o) [+] gather_along num conv_window (along weights) x o.
(** The same relation read backwards. *)
Definition conv_transpose weights bias x i := bias (channel i) [+] scatter_along num conv_window (along weights) x i.
(** The cotangent of the weights: each receives gy * x from the outputs that use it. *)
Definition weight_reads o t := match reads_all conv_window o t with Some _ => Some (weight_at o t) | None => None end.
Definition cell (x : list Z -> F) o t := match reads_all conv_window o t with Some i => x i | None => zero num end.
Definition conv_weight x gy := scatter num (outs conv_window) (taps conv_window) same weight_reads (cell x) gy.
Definition bias_cotangent ps gy := scatter num ps [tt] same (fun p _ => Some (channel p)) (fun _ _ => one num) gy.

Definition conv_jvp weights x dweights dbias dx o := conv weights nothing dx o [+] conv dweights dbias x o.
Definition conv_vjp_x weights gy := conv_transpose weights nothing gy.
Definition conv_vjp_w x gy := conv_weight x gy.
Definition conv_vjp_b gy := bias_cotangent (outs conv_window) gy.
Definition conv_transpose_jvp weights x dweights dbias dx i :=
  conv_transpose weights nothing dx i [+] conv_transpose dweights dbias x i.
Definition conv_transpose_vjp_x weights gy := conv weights nothing gy.
Definition conv_transpose_vjp_w x gy := conv_weight gy x.
Definition conv_transpose_vjp_b gy := bias_cotangent (ins conv_window) gy.

(** [C1] Every tap of a group's output channel reads an input channel of that group. *)
Theorem grouped_reads o t : 1 <= groups -> (groups | cin) -> (groups | cout) -> 0 <= o < cout ->
  0 <= t < cin / groups ->
  reads (Grouped groups cin cout) o t = Some (o / (cout / groups) * (cin / groups) + t) /\
  0 <= o / (cout / groups) < groups.
Proof.
  intros G [a A] [b B] O T. subst cin cout. rewrite Z.div_mul in * by lia. rewrite Z.div_mul by lia.
  assert (B0 : 0 < b) by nia. assert (Q : 0 <= o / b < groups).
  { split; [apply Z.div_pos; lia | apply Z.div_lt_upper_bound; nia]. }
  split; [|exact Q]. unfold reads, place, size. rewrite !Z.div_mul by lia.
  replace (within _ _ _) with true; [reflexivity|]. symmetry. apply within_spec. nia.
Qed.

Lemma inner_plus ps a b c : inner ps a (fun p => b p [+] c p) = inner ps a b [+] inner ps a c.
Proof. unfold inner. rewrite <- sum_plus. apply sum_ext; intros; ring. Qed.
Lemma inner_comm ps a b : inner ps a b = inner ps b a.
Proof. apply sum_ext; intros; ring. Qed.

Lemma weight_at_in o t : In o (outs conv_window) -> In t (taps conv_window) ->
  In (weight_at o t) (positions weight_shape).
Proof.
  unfold outs, taps, conv_window, weight_shape. rewrite !in_positions. cbn [map]. intros O T.
  inversion_clear O as [|? ? ? ? _ O']. inversion_clear O' as [|? ? ? ? C _]. inversion_clear T as [|? ? ? ? _ T'].
  simpl. constructor; [exact C | exact T'].
Qed.

Lemma bias_adjoint ps bias gy : (forall p, In p ps -> In (channel p) (positions [cout])) ->
  inner ps gy (fun p => bias (channel p)) = inner (positions [cout]) (bias_cotangent ps gy) bias.
Proof.
  intros H. unfold inner, bias_cotangent. rewrite <-
    (adjoint num ps [tt] same _ (fun _ _ => one num) (positions [cout])).
  - apply sum_ext; intros p _. unfold gather. simpl. ring.
  - apply same_spec.
  - intros p t i Hp _ [= <-]. auto.
  - apply positions_nodup.
Qed.

Lemma weight_adjoint weights x gy :
  inner (outs conv_window) gy (gather_along num conv_window (along weights) x) =
    inner (positions weight_shape) (conv_weight x gy) weights.
Proof.
  unfold inner, conv_weight.
  rewrite <- (adjoint num (outs conv_window) (taps conv_window) same weight_reads (cell x) (positions weight_shape)).
  - apply sum_ext; intros o _. f_equal. unfold gather_along, gather, weight_reads, cell, along.
    apply sum_ext; intros t _.
    destruct (reads_all conv_window o t); [ring | reflexivity].
  - apply same_spec.
  - intros o t i Ho Ht. unfold weight_reads. destruct (reads_all _ _ _); [|discriminate]. intros [= <-].
    now apply weight_at_in.
  - apply positions_nodup.
Qed.

Lemma channel_of_out o : In o (outs conv_window) -> In (channel o) (positions [cout]).
Proof.
  unfold outs, conv_window. rewrite !in_positions. cbn [map]. intros O. inversion_clear O as [|? ? ? ? _ O'].
  inversion_clear O' as [|? ? ? ? C _]. simpl. repeat constructor; apply C.
Qed.
End Conv.
Arguments inner {F}. Arguments nothing {F}. Arguments along {F}.

Section Laws.
Context {F : Type} (num : numbers F).
Add Ring numbers_ring2 : (laws num).
Local Infix "[+]" := (add num) (at level 50, left associativity).
Variables (batch groups cin cout : Z) (w : list axis).
Local Notation W := (conv_window batch groups cin cout w).

(** Law 5: conv_transpose is the adjoint of conv. *)
Theorem conv_transpose_adjoint_of_conv weights x gy :
  inner num (outs W) gy (conv num batch groups cin cout w weights (nothing num) x) =
  inner num (ins W) (conv_transpose num batch groups cin cout w weights (nothing num) gy) x.
Proof.
  transitivity (inner num (outs W) gy (gather_along num W (along weights) x)).
  { apply sum_ext; intros; unfold conv, nothing; f_equal; ring. }
  etransitivity; [apply window_adjoint|]. apply sum_ext; intros; unfold conv_transpose, nothing; f_equal; ring.
Qed.

(** Law 1 for conv, in x, in the weights and in the bias. *)
Theorem conv_adjoint weights x dweights dbias dx gy :
  inner num (outs W) gy (conv_jvp num batch groups cin cout w weights x dweights dbias dx) =
  inner num (ins W) (conv_vjp_x num batch groups cin cout w weights gy) dx [+]
  inner num (positions (weight_shape groups cin cout w)) (conv_vjp_w num batch groups cin cout w x gy) dweights [+]
  inner num (positions [cout]) (conv_vjp_b num batch groups cin cout w gy) dbias.
Proof.
  unfold conv_jvp. rewrite inner_plus, conv_transpose_adjoint_of_conv. unfold conv at 1.
  rewrite inner_plus, weight_adjoint.
  rewrite (bias_adjoint num cout) by apply channel_of_out. unfold conv_vjp_x, conv_vjp_w, conv_vjp_b. ring.
Qed.

(** Law 1 for conv_transpose; its output channels are the cells of the grouped axis. *)
Theorem conv_transpose_adjoint weights x dweights dbias dx gy :
  inner num (ins W) gy (conv_transpose_jvp num batch groups cin cout w weights x dweights dbias dx) =
  inner num (outs W) (conv_transpose_vjp_x num batch groups cin cout w weights gy) dx [+]
  inner num (positions (weight_shape groups cin cout w)) (conv_transpose_vjp_w num batch groups cin cout w x gy)
    dweights [+]
  inner num (positions [cin]) (conv_transpose_vjp_b num batch groups cin cout w gy) dbias.
Proof.
  unfold conv_transpose_jvp. rewrite inner_plus, inner_comm, <- conv_transpose_adjoint_of_conv.
  unfold conv_transpose at 1.
  rewrite inner_plus. rewrite (bias_adjoint num cin).
  2: { intros p. unfold ins, conv_window. rewrite !in_positions. cbn [map]. intros O. inversion_clear O as
    [|? ? ? ? _ O'].
       inversion_clear O' as [|? ? ? ? C _]. simpl. repeat constructor; apply C. }
  replace (inner num (ins W) gy (scatter_along num W (along dweights) x)) with
    (inner num (outs W) x (gather_along num W (along dweights) gy)).
  2: { etransitivity; [apply window_adjoint|]. apply inner_comm. }
  rewrite weight_adjoint. unfold conv_transpose_vjp_x, conv_transpose_vjp_w, conv_transpose_vjp_b.
  rewrite (inner_comm num (outs W) dx). ring.
Qed.

Lemma gather_plus v (f g : list Z -> list Z -> F) x y o :
  gather_along num v (fun o t => f o t [+] g o t) (fun i => x i [+] y i) o =
  gather_along num v f x o [+] gather_along num v f y o [+] gather_along num v g x o [+] gather_along num v g y o.
Proof.
  unfold gather_along, gather. rewrite <- !sum_plus. apply sum_ext; intros t _. destruct (reads_all v o t); ring.
Qed.
(** Law 2: the tangent of conv is what changes to first order; the rest is a product of changes. *)
Theorem conv_expansion weights bias x dweights dbias dx o :
  conv num batch groups cin cout w (fun j => weights j [+] dweights j) (fun c => bias c [+] dbias c)
    (fun i => x i [+] dx i) o =
  conv num batch groups cin cout w weights bias x o [+]
    conv_jvp num batch groups cin cout w weights x dweights dbias dx o
  [+] conv num batch groups cin cout w dweights (nothing num) dx o.
Proof. unfold conv_jvp, conv, along at 1, nothing. rewrite gather_plus. unfold along. ring. Qed.
End Laws.
