(** Derivatives by dual numbers: values over pairs (value, change) are the values and their tangents.

    A dual number is a + b*d with d*d = 0. Dual numbers over a commutative ring are one again, so conv,
    conv_transpose, avg_pool and max_pool, which are defined over any ring, can be computed over them. What comes out
    is the value, and as coefficient of d the tangent: so a tangent is no formula of its own that could be wrong, but
    what the forward map does to first order. For max_pool, where values alone are compared, that is a rule and no
    derivative at a tie (MaxDerivative.v). Taken again, dual numbers over dual numbers give second derivatives. *)
From Coq Require Import ZArith List Bool Ring Ring_theory Qcanon.
From Specgrad Require Import Numbers Relation Window Readers Conv AvgPool MaxPool.
Import ListNotations.

Section Dual.
Context {F : Type} (num : numbers F).
Add Ring numbers_ring : (laws num).
Local Infix "[+]" := (add num) (at level 50, left associativity).
Local Infix "[*]" := (mul num) (at level 40, left associativity).

(** a + b*d with d*d = 0. Division is that of constants. *)
Definition dual_add (p q : F * F) := (fst p [+] fst q, snd p [+] snd q).
Definition dual_mul (p q : F * F) := (fst p [*] fst q, fst p [*] snd q [+] snd p [*] fst q).
Definition dual_sub (p q : F * F) := (sub num (fst p) (fst q), sub num (snd p) (snd q)).
Definition dual_opp (p : F * F) := (opp num (fst p), opp num (snd p)).
Lemma dual_laws : ring_theory (zero num, zero num) (one num, zero num) dual_add dual_mul dual_sub dual_opp eq.
Proof.
  constructor; intros; repeat match goal with p : (F * F)%type |- _ => destruct p end;
    unfold dual_add, dual_mul, dual_sub, dual_opp; simpl; f_equal; ring.
Qed.
Definition dual : numbers (F * F) :=
  {| zero := (zero num, zero num); one := (one num, zero num); add := dual_add; mul := dual_mul; sub := dual_sub;
    opp := dual_opp;
     div := fun p q => (div num (fst p) (fst q), zero num); laws := dual_laws |}.

Definition both {A} (f df : A -> F) a := (f a, df a).
Lemma sum_dual {A} (l : list A) f df : sum dual l (both f df) = (sum num l f, sum num l df).
Proof. induction l as [|a l IH]; [reflexivity|]. simpl. now rewrite IH. Qed.

Lemma gather_dual w f df x dx o :
  gather_along dual w (fun o t => (f o t, df o t)) (both x dx) o =
  (gather_along num w f x o, gather_along num w f dx o [+] gather_along num w df x o).
Proof.
  unfold gather_along, gather. rewrite <- sum_plus, <- sum_dual. apply sum_ext; intros t _. unfold both, dual. simpl.
  destruct (reads_all w o t); unfold dual_mul; simpl; f_equal; ring.
Qed.
Lemma scatter_dual w f df x dx i :
  scatter_along dual w (fun o t => (f o t, df o t)) (both x dx) i =
  (scatter_along num w f x i, scatter_along num w f dx i [+] scatter_along num w df x i).
Proof.
  rewrite !scatter_along_scatter. unfold scatter. rewrite <- sum_plus, <- sum_dual. apply sum_ext; intros o _.
  unfold both at 2. rewrite <- sum_plus, <- sum_dual. apply sum_ext; intros t _. unfold both, dual. simpl.
  destruct (reads_all w o t) as [j|]; [destruct (same j i)|]; unfold dual_mul; simpl; f_equal; ring.
Qed.

Variables (batch groups cin cout : Z) (w : list axis).
(** Law 2: over dual numbers, the coefficient of conv is its tangent. *)
Theorem conv_dual weights dweights bias dbias x dx o :
  conv dual batch groups cin cout w (both weights dweights) (both bias dbias) (both x dx) o =
  (conv num batch groups cin cout w weights bias x o,
    conv_jvp num batch groups cin cout w weights x dweights dbias dx o).
Proof.
  unfold conv, conv_jvp, conv, nothing. change (along (both weights dweights))
    with (fun o t => (along weights o t, along dweights o t)).
  rewrite gather_dual. unfold both, dual, dual_add. simpl. f_equal. ring.
Qed.
(** Law 2, of conv_transpose. *)
Theorem conv_transpose_dual weights dweights bias dbias x dx i :
  conv_transpose dual batch groups cin cout w (both weights dweights) (both bias dbias) (both x dx) i =
  (conv_transpose num batch groups cin cout w weights bias x i,
   conv_transpose_jvp num batch groups cin cout w weights x dweights dbias dx i).
Proof.
  unfold conv_transpose_jvp, conv_transpose, nothing.
  change (along (both weights dweights)) with (fun o t => (along weights o t, along dweights o t)).
  rewrite scatter_dual. unfold both, dual, dual_add. simpl. f_equal. ring.
Qed.
(** Law 2, of avg_pool: the shares are numbers of the graph, and do not change. *)
Theorem avg_pool_dual part v x dx o :
  avg_pool dual (both part (fun _ => zero num)) v (both x dx) o = (avg_pool num part v x o, avg_pool num part v dx o).
Proof.
  unfold avg_pool. change (fun (o : list Z) (_ : list Z) => both part (fun _ => zero num) o) with
    (fun (o : list Z) (_ : list Z) => (part o, zero num)).
  rewrite (gather_dual v (fun o _ => part o) (fun _ _ => zero num)). f_equal.
  rewrite (gather_cells num v x o (zero num)). ring.
Qed.
(** Law 2, of max_pool, where values alone are compared. *)
Theorem max_pool_dual (less : F -> F -> bool) v x dx o :
  max_pool dual (fun p q => less (fst p) (fst q)) v (both x dx) o =
    (max_pool num less v x o, max_pool_jvp num less v x dx o).
Proof.
  unfold max_pool, max_pool_jvp, take.
  change (winner (fun p q => less (fst p) (fst q)) v (both x dx) o) with (winner less v x o).
  now destruct (winner less v x o).
Qed.
End Dual.

(** The order of the rationals is one that max_pool's theorems speak of. *)
Definition less_Qc (a b : Qc) : bool := if Qclt_le_dec a b then true else false.
Lemma rationals_ordered : weak_order less_Qc.
Proof.
  unfold less_Qc. repeat split; intros.
  - destruct (Qclt_le_dec a a) as [H|H]; [now apply Qclt_not_eq in H | reflexivity].
  - destruct (Qclt_le_dec a b), (Qclt_le_dec b c), (Qclt_le_dec a c) as [|L]; try easy.
    exfalso. apply (Qclt_not_le a c); [eapply Qclt_trans; eauto | exact L].
  - destruct (Qclt_le_dec a b), (Qclt_le_dec b c), (Qclt_le_dec a c) as [L|]; try easy.
    exfalso. apply (Qclt_not_le a c); [exact L | eapply Qcle_trans; eauto].
Qed.
