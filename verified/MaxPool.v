(** max_pool over any window: its winner, its value, its tangent and cotangent (take and put).

    The winner is the first of the greatest taps inside: a later tap wins only if it is greater. The value, the
    tangent and the cotangent all follow the same winner, so they are adjoint with ties too, whatever a tie decides
    (`take_put_adjoint` holds for any winners). Padded taps take no part. A window without a tap inside has no
    winner: its value is 0, and so is its tangent, and it passes nothing back. The order is any weak order: of
    rationals, of reals, or of dual numbers that compare their values alone. Where the tangent is the derivative, and
    where it is none, stands in MaxDerivative.v. *)
From Coq Require Import ZArith List Bool Lia Ring.
From Specgrad Require Import Numbers Relation Window Readers Conv AvgPool.
Import ListNotations.
Open Scope Z_scope.

(** What is asked of "less": no number is less than itself, and both it and its negation are transitive. *)
Definition weak_order {F} (less : F -> F -> bool) :=
  (forall a, less a a = false) /\ (forall a b c, less a b = true -> less b c = true -> less a c = true) /\
  (forall a b c, less a b = false -> less b c = false -> less a c = false).

Section Winner.
Context {F I : Type} (less : F -> F -> bool) (x : I -> F).
(** A later tap wins only if it is greater. *)
Definition choose best i := match best with None => Some i | Some j => if less (x j) (x i) then Some i else Some j end.
Definition first_winner (l : list I) := fold_left choose l None.

(** i stands first among the greatest of l: what comes before is less, what comes after is not greater. *)
Definition is_first l i := exists before after, l = before ++ i :: after /\
  (forall j, In j before -> less (x j) (x i) = true) /\ (forall j, In j after -> less (x i) (x j) = false).
Lemma first_winner_none l : first_winner l = None <-> l = [].
Proof.
  unfold first_winner. destruct l as [|i l] using rev_ind; [easy|]. rewrite fold_left_app. simpl.
  split; [|intros H; now apply app_eq_nil in H]. destruct (fold_left choose l None); simpl; [|discriminate].
  now destruct (less _ _).
Qed.
Lemma first_winner_first l i : weak_order less -> first_winner l = Some i -> is_first l i.
Proof.
  intros (R & T & N). revert i. induction l as [|a l IH] using rev_ind; [discriminate|]. intros i.
  unfold first_winner. rewrite fold_left_app. fold (first_winner l). simpl.
  destruct (first_winner l) as [j|] eqn:E; simpl.
  - destruct (IH j eq_refl) as (b & c & -> & B & C). destruct (less (x j) (x a)) eqn:L; intros [= <-].
    + exists (b ++ j :: c), []. repeat split; [|easy]. intros k. rewrite in_app_iff. simpl. intros [H | [<- | H]];
        [eauto | exact L |].
      destruct (less (x k) (x a)) eqn:K; [reflexivity|]. rewrite (N _ _ _ (C k H) K) in L. discriminate.
    + exists b, (c ++ [a]). rewrite <- app_assoc. repeat split; [exact B|]. intros k. rewrite in_app_iff. 
      intros [H | [<- | []]]; auto.
  - apply first_winner_none in E. subst l. intros [= <-]. exists [], []. easy.
Qed.
(** No tap is greater. *)
Lemma first_winner_greatest l i j : weak_order less -> first_winner l = Some i -> In j l -> less (x i) (x j) = false.
Proof.
  intros O H J. destruct (first_winner_first l i O H) as (b & c & -> & B & C). destruct O as (R & T & _).
  apply in_app_iff in J. destruct J as [J | [<- | J]]; [|apply R | now apply C].
  destruct (less (x i) (x j)) eqn:E; [|reflexivity]. rewrite <- (R (x i)). symmetry. eapply T; eauto.
Qed.
Lemma first_winner_in l i : weak_order less -> first_winner l = Some i -> In i l.
Proof. intros O H. destruct (first_winner_first l i O H) as (b & c & -> & _). auto with datatypes. Qed.
End Winner.

Section MaxPool.
Context {F : Type} (num : numbers F) (less : F -> F -> bool).
Add Ring numbers_ring : (laws num).

Definition winner w x o := first_winner less x (cells w o).
(** Tangent and value read at a given winner; 0 where there is none. The cotangent is added there. *)
Definition take (win : list Z -> option (list Z)) (x : list Z -> F) o := match win o with Some i => x i
  | None => zero num end.
Definition put (ps : list (list Z)) (win : list Z -> option (list Z)) gy :=
  scatter num ps [tt] same (fun o _ => win o) (fun _ _ => one num) gy.
Definition max_pool w x o := take (winner w x) x o.
Definition max_pool_jvp w x dx o := take (winner w x) dx o.
Definition max_pool_vjp w x gy i := put (outs w) (winner w x) gy i.

(** Law 1 for take and put along any winners inside the input. *)
Theorem take_put_adjoint ps shape win dx gy : (forall o i, In o ps -> win o = Some i -> In i (positions shape)) ->
  inner num ps gy (take win dx) = inner num (positions shape) (put ps win gy) dx.
Proof.
  intros H. unfold inner, put. rewrite <- (adjoint num ps [tt] same _ _ (positions shape)).
  - apply sum_ext; intros o _. f_equal. unfold take, gather. simpl. destruct (win o); ring.
  - apply same_spec.
  - intros o t i Ho _. now apply H.
  - apply positions_nodup.
Qed.

Hypothesis order : weak_order less.
Lemma in_cells w o i : In i (cells w o) <-> exists t, In t (taps w) /\ reads_all w o t = Some i.
Proof.
  unfold cells. rewrite in_flat_map. split; intros (t & Ht & H); exists t; split; auto.
  - destruct (reads_all w o t); [|destruct H]. destruct H as [<- | []]. reflexivity.
  - rewrite H. now left.
Qed.
(** Law 1 for max_pool, ties included: tangent and cotangent follow the same winner. *)
Theorem max_pool_adjoint w x dx gy :
  inner num (outs w) gy (max_pool_jvp w x dx) = inner num (ins w) (max_pool_vjp w x gy) dx.
Proof.
  apply take_put_adjoint. intros o i _ H. apply first_winner_in in H; [|exact order].
  apply in_cells in H. destruct H as (t & _ & H). now apply reads_all_inside in H.
Qed.
(** [first] The value is one of the inside taps, and none is greater. *)
Theorem max_pool_greatest w x o : cells w o <> [] -> exists i, winner w x o = Some i /\ In i (cells w o) /\
  max_pool w x o = x i /\ (forall j, In j (cells w o) -> less (max_pool w x o) (x j) = false).
Proof.
  intros H. unfold max_pool, take, winner. destruct (first_winner less x (cells w o)) as [i|] eqn:E.
  - exists i. repeat split; [eapply first_winner_in; eauto |]. intros j. eapply first_winner_greatest; eauto.
  - apply first_winner_none in E. contradiction.
Qed.
(** [first] The winner is the first of the greatest inside taps. *)
Theorem max_pool_first w x o i : winner w x o = Some i -> is_first less x (cells w o) i.
Proof. now apply first_winner_first. Qed.
(** [first] Without an inside tap: no winner, value 0, tangent 0, and nothing is passed back. *)
Theorem max_pool_empty w x dx gy o : cells w o = [] ->
  winner w x o = None /\ max_pool w x o = zero num /\ max_pool_jvp w x dx o = zero num /\
  (forall i, put [o] (winner w x) gy i = zero num).
Proof.
  intros E. assert (W : winner w x o = None) by (apply first_winner_none, E).
  unfold max_pool, max_pool_jvp, take, put, scatter. simpl. rewrite W. repeat split; auto. intros. ring.
Qed.
End MaxPool.
