(* What `check_sound` says is not empty: whatever is accepted has executions, among them, at every input of the box,
   the network over real numbers. So what is accepted holds of exact outputs too.

   A statement about all executions is true of a network that has none, and a sum without products has none, since no
   formula has no addends. So `check` refuses such cells (`proper`), empty ranges and negative errors. Of what is
   left an execution can be written down: the one that rounds nothing, whose formula is the plain sum of products
   from left to right, and whose every reader sees the exact value. Its values exist cell by cell, in order
   (`exact_values`), and the theorem about all executions says of this one that its outputs, the exact ones, are in
   no excluded set. *)
From Coq Require Import Reals ZArith List Permutation Lra Bool Lia.
From Specgrad Require Import CheckNumber CheckTrie CheckTrees CheckBend CheckExecution CheckSums Check.
Import ListNotations.
Open Scope R_scope.

(* The exact value of a cell, from those of its sources; `at_input` is the input. *)
Definition exact_of (at_input g : key -> R) (k : key) (x : cell) : R :=
  match x with
  | Input _ _ => at_input k
  | Sum s => line g (terms s)
  | Relu j => Rmax 0 (g j)
  | Max j js => maximum (g j) (map g js)
  | Bend j f => bent_at f (g j)
  end.
Definition evaluates (net : network) (at_input g : key -> R) : Prop := forall k x, In (k, x) net ->
  g k = exact_of at_input g k x.

Definition sources_of (ps : list term) : list key :=
  flat_map (fun p => match source p with None => [] | Some j => [j] end) ps.
Lemma line_same f g : forall ps, (forall j, In j (sources_of ps) -> f j = g j) -> line f ps = line g ps.
Proof.
  induction ps as [|p ps IH]; intros H; simpl; auto. simpl in H. rewrite IH by (intros; apply H, in_or_app; auto).
  destruct (source p); auto. rewrite H; auto. now left.
Qed.
Lemma exact_same at_input f g k x : (forall j, In j (sources x) -> f j = g j) ->
  exact_of at_input f k x = exact_of at_input g k x.
Proof.
  destruct x as [l h|s|j|j js|j b]; simpl; intros H; auto.
  - now apply line_same.
  - now rewrite H by auto.
  - rewrite H by auto. f_equal. apply map_ext_in. auto.
  - now rewrite H by auto.
Qed.
(* A network in order has exact values: each cell's from those before it. *)
Lemma exact_values at_input part : forall seen f, ordered part seen = true ->
  exists g, (forall j, get j seen <> None -> g j = f j) /\ evaluates part at_input g.
Proof.
  induction part as [|[k x] part IH]; intros seen f O; simpl in *; [exists f; split; auto; intros k x []|].
  apply andb_prop in O as [O1 O]. apply andb_prop in O1 as [N S]. rewrite forallb_forall in S.
  assert (Fresh : get k seen = None) by (destruct (get k seen); [discriminate | auto]).
  destruct (IH (put k (Some true) seen) (update f k (exact_of at_input f k x)) O) as [g [A B]]. exists g.
  assert (Same : forall j, get j seen <> None -> g j = f j).
  { intros j H. assert (k <> j) by (intros ->; auto). rewrite A by (rewrite get_put_other; auto).
    unfold update. now destruct (key_dec k j). }
  split; auto. intros j z [E|H]; [injection E as <- <- | now apply B].
  rewrite A by (rewrite get_put_same; discriminate). unfold update. destruct (key_dec k k); [|tauto].
  apply exact_same. intros j H. symmetry. apply Same. specialize (S j H). destruct (get j seen); discriminate.
Qed.
Lemma ordered_sources part : forall seen, ordered part seen = true -> forall k x j, In (k, x) part ->
  In j (sources x) ->
  get j seen <> None \/ exists y, In (j, y) part.
Proof.
  induction part as [|[a z] part IH]; intros seen O k x j; [intros []|]. simpl in O. apply andb_prop in O as [O1 O].
  apply andb_prop in O1 as [_ S]. rewrite forallb_forall in S. intros [E|H] J.
  - injection E as <- <-. left. specialize (S j J). destruct (get j seen); discriminate.
  - destruct (IH _ O _ _ _ H J) as [N|[y Y]]; [|right; exists y; now right].
    destruct (key_dec a j) as [<-|D]; [right; exists z; now left | left; now rewrite get_put_other in N].
Qed.

(* --- the formula without roundings --- *)
Section Tree.
Variable g : key -> R.
Definition leaf_of (p : term) : formula :=
  match source p with None => Constant (real (weight p))
    | Some j => Multiplied (Constant (real (weight p))) (Read j (g j)) end.
Fixpoint plain (p : term) (ps : list term) : formula := match ps with [] => leaf_of p
  | q :: ps => Added (leaf_of p) (plain q ps) end.
Definition addend_of (p : term) : addend :=
  match source p with
  | None => Addend (real (weight p)) (Rmax 1 (Rabs (real (weight p)))) []
  | Some j => Addend (real (weight p) * 1) (Rmax 1 (Rabs (real (weight p))) * 1) [(j, g j)]
  end.
Lemma addends_plain ps : forall p, addends (plain p ps) = map addend_of (p :: ps).
Proof.
  assert (L : forall p, addends (leaf_of p) = [addend_of p]) by
    (intros p; unfold leaf_of, addend_of; now destruct (source p)).
  induction ps as [|q ps IH]; intros p; cbn [plain map addends]; [apply L | now rewrite L, IH].
Qed.
Lemma plain_fine ps : forall p, units_ok (plain p ps) /\ unit_product (plain p ps) = 1 /\ loss_product (plain p ps) = 1.
Proof.
  assert (L : forall p, units_ok (leaf_of p) /\ unit_product (leaf_of p) = 1 /\ loss_product (leaf_of p) = 1).
  { intros p. unfold leaf_of. destruct (source p); simpl; repeat split; ring. }
  induction ps as [|q ps IH]; intros p; cbn [plain]; auto. simpl.
  destruct (L p) as [A [-> ->]], (IH q) as [B [-> ->]]. rewrite Rmax_left by lra. auto.
Qed.
Lemma plain_evals ps : forall p, exists m, evals (plain p ps) (line g (p :: ps)) m.
Proof.
  assert (L : forall p, exists m, evals (leaf_of p)
    (real (weight p) * match source p with None => 1 | Some j => g j end) m).
  { intros p. unfold leaf_of. destruct (source p);
      [exists (Rmax 0 0); repeat constructor | exists 0; rewrite Rmult_1_r; constructor]. }
  induction ps as [|q ps IH]; intros p; cbn [plain]; destruct (L p) as [m E].
  - exists m. replace (line g [p]) with (real (weight p) * match source p with None => 1 | Some j => g j end) by
      (simpl; ring). exact E.
  - destruct (IH q) as [n F]. exists (Rmax m n). now constructor.
Qed.
Lemma reads_plain ps : forall p j w, In (j, w) (cells_read (plain p ps)) -> w = g j /\ In j (sources_of (p :: ps)).
Proof.
  assert (L : forall p j w, In (j, w) (cells_read (leaf_of p)) ->
    w = g j /\ In j (match source p with None => [] | Some j => [j] end)).
  { intros p j w. unfold leaf_of. destruct (source p); simpl; [|tauto]. intros [[= <- <-]|[]]. auto. }
  induction ps as [|q ps IH]; intros p j w; cbn [plain cells_read].
  - intros H. destruct (L _ _ _ H). split; auto. simpl. now rewrite app_nil_r.
  - rewrite in_app_iff. change (sources_of (p :: q :: ps))
      with ((match source p with None => [] | Some j => [j] end) ++ sources_of (q :: ps)).
    intros [H|H]; [destruct (L _ _ _ H) | destruct (IH _ _ _ H)]; split; auto; apply in_or_app; auto.
Qed.
End Tree.

(* --- the execution --- *)
Fixpoint lookup (k : key) (net : network) : option cell :=
  match net with [] => None | (i, x) :: net => if key_dec i k then Some x else lookup k net end.
Lemma lookup_in net : (forall k x y, In (k, x) net -> In (k, y) net -> x = y) -> forall k x, In (k, x) net ->
  lookup k net = Some x.
Proof.
  induction net as [|[i z] net IH]; intros U k x H; [destruct H|]. simpl. destruct (key_dec i k) as [->|D].
  - f_equal. apply (U k); [now left | exact H].
  - destruct H as [E|H]; [congruence|]. apply IH; auto. intros j a b A B. apply (U j); now right.
Qed.
(* What a sum reads at its n-th product. *)
Definition fetches (net : network) (g : key -> R) (k : key) (n : nat) : R :=
  match lookup k net with
  | Some (Sum s) => match nth_error (terms s) n with Some p => match source p with Some j => g j | None => 0 end
    | None => 0 end
  | _ => 0
  end.

Section Exact.
Variables (net : network) (unit : R) (at_input g : key -> R).
Hypothesis unit_nonneg : 0 <= unit.
Hypothesis in_order : ordered net Empty = true.
Hypothesis all_proper : forall k x, In (k, x) net -> proper x = true.
Hypothesis inside : forall k low high, In (k, Input low high) net -> real low <= at_input k <= real high.
Hypothesis exact : evaluates net at_input g.
Let fetched := fetches net g.
Let unique := ordered_unique net zero (fun _ => 0) (fun _ _ => 0) net Empty in_order.

Lemma fetched_is k s n p j : In (k, Sum s) net -> nth_error (terms s) n = Some p -> source p = Some j ->
  fetched k n = g j.
Proof. intros K N S. unfold fetched, fetches. rewrite (lookup_in net unique _ _ K), N, S. reflexivity. Qed.
Lemma sum_proper k s : In (k, Sum s) net -> terms s <> [] /\ 0 <= real (blur s) /\ 1 <= real (spread s).
Proof.
  intros K. specialize (all_proper _ _ K). simpl in all_proper. destruct (terms s); [discriminate|].
  apply andb_prop in all_proper as [B W].
  apply negb_true_iff in B. apply at_most_real in W. rewrite real_one in W. split; [discriminate|]. split; auto.
  now apply not_negative.
Qed.
Lemma plain_matches k s : In (k, Sum s) net -> forall ps n,
  (forall i p, nth_error ps i = Some p -> nth_error (terms s) (n + i) = Some p) ->
  all_match s (fetched k) n ps (map (addend_of g) ps).
Proof.
  intros K. destruct (sum_proper _ _ K) as [_ [B W]]. induction ps as [|p ps IH]; intros n H; simpl; auto. split.
  - assert (P : nth_error (terms s) n = Some p) by (rewrite <- (Nat.add_0_r n); now apply H).
    pose proof (Rmax_l 1 (Rabs (real (weight p)))) as O. unfold matches, addend_of. destruct (source p) as [j|] eqn:S;
      simpl.
    + split; [rewrite Rmult_1_r, Rminus_diag_eq, Rabs_R0; auto|]. split; [rewrite Rmult_1_r; nra|].
      exists (g j). split; auto. intros _. symmetry. eapply fetched_is; eauto.
    + split; [rewrite Rminus_diag_eq, Rabs_R0; auto|]. split; [nra | reflexivity].
  - apply IH. intros i q Hq. replace (S n + i)%nat with (n + S i)%nat by lia. now apply H.
Qed.
Lemma plain_tree k s : In (k, Sum s) net -> exists t m, formula_of unit fetched k s t /\ evals t (g k) m /\
  forall j w, In (j, w) (cells_read t) -> w = g j /\ In j (sources (Sum s)).
Proof.
  intros K. destruct (sum_proper _ _ K) as [N _]. rewrite (exact _ _ K). simpl.
  destruct (terms s) as [|p ps] eqn:T; [congruence|].
  destruct (plain_evals g ps p) as [m E], (plain_fine g ps p) as [U [G L]].
  exists (plain g p ps), m. split; [|split; [exact E|]].
  - split; [exact U|]. split; [rewrite G; apply pow_R1_Rle; lra|].
    split; [rewrite L; apply pow_R1_Rle; pose proof least_normal_pos; lra|].
    exists (map (addend_of g) (p :: ps)). split; [rewrite addends_plain; reflexivity|].
    rewrite T. apply plain_matches; auto. intros i q Hq. simpl. now rewrite T.
  - intros j w H. now apply reads_plain in H.
Qed.
Lemma no_error v : v = v + 0.
Proof. ring. Qed.
Lemma exact_values_held part : forall seen, incl part net -> ordered part seen = true ->
  (forall j, get j seen <> None -> possible net unit g fetched j (g j)) -> forall k x, In (k, x) part ->
    possible net unit g fetched k (g k).
Proof.
  induction part as [|[k x] part IH]; intros seen I O V j z; [intros []|]. simpl in O.
  apply andb_prop in O as [O1 O]. apply andb_prop in O1 as [_ S]. rewrite forallb_forall in S.
  assert (K : In (k, x) net) by (apply I; now left).
  assert (Src : forall i, In i (sources x) -> possible net unit g fetched i (g i)).
  { intros i Hi. apply V. specialize (S i Hi). destruct (get i seen); discriminate. }
  assert (Vk : possible net unit g fetched k (g k)).
  { destruct x as [l h|s|i|i is|i b].
    - eapply possible_input; eauto.
    - destruct (once s) eqn:Q; [eapply possible_once; eauto|]. destruct (plain_tree k s K) as [t [m [T [E R]]]].
      eapply possible_sum; eauto. intros i w Hi. destruct (R i w Hi) as [-> Hs]. auto.
    - rewrite (exact _ _ K). simpl. rewrite no_error. eapply possible_relu; eauto;
        [apply Src; now left | rewrite Rabs_R0; left; apply least_normal_pos].
    - rewrite (exact _ _ K). simpl. rewrite no_error. eapply possible_max; eauto;
        [apply Src; now left | | rewrite Rabs_R0; left; apply least_normal_pos].
      simpl in Src. assert (W : forall a, In a is -> possible net unit g fetched a (g a)) by auto. clear - W.
      induction is as [|a is IHi]; simpl; constructor; [apply W; now left | apply IHi; intros; apply W; now right].
    - pose proof (all_proper _ _ K) as P. simpl in P. apply andb_prop in P as [A B].
      apply negb_true_iff, not_negative in A. apply negb_true_iff, not_negative in B. rewrite (exact _ _ K). simpl.
      rewrite no_error.
      eapply possible_bend; eauto; [apply Src; now left|]. rewrite Rabs_R0. pose proof (Rabs_pos (g i)). nra. }
  intros [E|H]; [injection E as <- <-; exact Vk|]. eapply (IH (put k (Some true) seen)); eauto.
  - intros a Ha. apply I. now right.
  - intros i Hi. destruct (key_dec k i) as [<-|D]; auto. rewrite get_put_other in Hi; auto.
Qed.
Lemma held k x : In (k, x) net -> possible net unit g fetched k (g k).
Proof. apply (exact_values_held net Empty); auto using incl_refl. intros j H. now elim H. Qed.
Lemma source_held k x j : In (k, x) net -> In j (sources x) -> possible net unit g fetched j (g j).
Proof. intros K J. destruct (ordered_sources net Empty in_order _ _ _ K J) as [N|[y Y]];
  [now elim N | eapply held; eauto]. Qed.
Lemma exact_execution : execution net unit g fetched.
Proof.
  split; [|split].
  - intros k l h K. rewrite (exact _ _ K). now apply inside.
  - intros k s K _. destruct (plain_tree k s K) as [t [m [T [E R]]]]. exists m, t. split; auto. split; auto.
    intros j w H. destruct (R j w H) as [-> J]. eapply source_held; eauto.
  - intros k s n p j K N _ S. rewrite (fetched_is k s n p j K N S). eapply source_held; eauto.
    simpl. apply in_flat_map. exists p. split; [eapply nth_error_In; eauto|]. rewrite S. now left.
Qed.
End Exact.

(* What is accepted has exact values at every input of the box, and they are those of an execution. *)
Theorem check_has_executions net unit groups at_input : check net unit groups = true -> 0 <= real unit ->
  (forall k low high, In (k, Input low high) net -> real low <= at_input k <= real high) ->
  exists stored fetched, execution net (real unit) stored fetched /\ evaluates net at_input stored /\
    forall k x, In (k, x) net -> possible net (real unit) stored fetched k (stored k).
Proof.
  unfold check. intros C U I. apply andb_prop in C as [O _]. apply andb_prop in O as [O P]. rewrite forallb_forall in P.
  assert (P' : forall k x, In (k, x) net -> proper x = true) by (intros k x K; exact (P _ K)).
  destruct (exact_values at_input net Empty (fun _ => 0) O) as [g [_ G]]. exists g, (fetches net g).
  split; [eapply exact_execution; eauto | split; auto]. intros k x K. eapply held; eauto.
Qed.

(* So what is accepted holds of exact outputs: none is in an excluded set. *)
Theorem check_exact net unit groups at_input y : check net unit groups = true -> 0 <= real unit ->
  (forall k low high, In (k, Input low high) net -> real low <= at_input k <= real high) -> evaluates net at_input y ->
  forall alts p rows, In (alts, p) groups -> In rows alts ->
    (forall k, In k (read_by rows) -> exists x, In (k, x) net) -> ~ outputs_in y rows.
Proof.
  intros C U I E alts p rows A R K. pose proof C as C'. unfold check in C'. apply andb_prop in C' as [O _].
  apply andb_prop in O as [O P].
  rewrite forallb_forall in P. assert (P' : forall k x, In (k, x) net -> proper x = true) by
    (intros k x H; exact (P _ H)).
  eapply (proj2 (check_sound net unit groups C y (fetches net y) ltac:(eapply exact_execution; eauto))); eauto.
  intros k H. destruct (K k H) as [x X]. eapply held; eauto.
Qed.
