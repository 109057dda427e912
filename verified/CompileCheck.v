(* The checker of certificates of graphs: their cells are compiled here, and what is excluded is said of positions of an
   output. So no program outside decides what a cell is. *)
From Coq Require Import Reals ZArith List Lra Bool.
From Specgrad Require Import CheckNumber CheckTrie CheckExecution CheckExact Check Compile CompileCount.
Import ListNotations.
Open Scope R_scope.

(* --- the program --- *)
(* A row of an alternative: the sum of coefficients times values of node `out`, at most the limit. *)
Record placed_row := PlacedRow { coefs_at : list (list Z * number); bound : number }.
Definition cell_of (e : entry) (p : list Z) : option key := if inside (extent e) p then cell_at e p else None.
Definition placed (e : entry) (r : placed_row) : option row :=
  match all_some (map (fun pc => match cell_of e (fst pc) with Some k => Some (k, snd pc) | None => None end)
    (coefs_at r)) with
  | Some cs => Some (Row cs (bound r))
  | None => None
  end.
Definition placed_group (e : entry) (g : list (list placed_row) * plan) : option (list alternative * plan) :=
  match all_some (map (fun rows => all_some (map (placed e) rows)) (fst g)) with Some alts => Some (alts, snd g)
    | None => None end.
(* key_of names the cells, in any way: hints of the plans use the names. None: the graph has no cells, or no such
   outputs. *)
Definition check_graph (key_of : nat -> list Z -> key) (nodes : list node) (out : nat) (unit : number)
    (groups : list (list (list placed_row) * plan)) : option bool :=
  match manners_of nodes [out] with
  | None => None
  | Some manners => match compile key_of manners nodes [] with
    | None => None
    | Some (net, env) => match all_some (map (placed_group (reader env out)) groups) with
      | None => None
      | Some groups => Some (check net unit groups)
      end
    end
  end.

(* --- what it means --- *)
(* The graph's own values at an input: conv, pools and the rest, over the reals. *)
Definition graph_values (nodes : list node) (at_input : nat -> array R) (out : nat) : array R :=
  snd (nth out (run at_input nodes []) ([], fun _ => 0)).
Definition row_sum (y : array R) (r : placed_row) : R :=
  fold_right (fun pc s => real (snd pc) * y (fst pc) + s) 0 (coefs_at r).
Definition in_rows (y : array R) (rows : list placed_row) : Prop := forall r, In r rows ->
  row_sum y r <= real (bound r).
Definition in_box (nodes : list node) (at_input : nat -> array R) : Prop :=
  forall i n low high p, nth_error nodes i = Some n -> what n = Given low high -> In p (positions (extents n)) ->
    real (low p) <= at_input i p <= real (high p).

(* --- every input of the graph is one of the cells --- *)
Lemma find_own {A} (dec : forall a b : A, {a = b} + {a <> b}) (k : list Z -> A) l p : NoDup (map k l) -> In p l ->
  find (fun q => if dec (k q) (k p) then true else false) l = Some p.
Proof.
  induction l as [|q l IH]; cbn [map find]; intros D P; [destruct P|]. inversion_clear D as [|? ? N D'].
  destruct (dec (k q) (k p)) as [E|E].
  - destruct P as [->|P]; [reflexivity|]. elim N. rewrite E. now apply in_map.
  - destruct P as [->|P]; [now elim E | auto].
Qed.
Lemma distinct_parts {A} (l m : list A) : NoDup (l ++ m) -> NoDup l /\ NoDup m.
Proof.
  induction l as [|a l IH]; cbn [app]; intros D; [split; [constructor | exact D]|]. inversion_clear D as [|? ? N D'].
  destruct (IH D') as [L M].
  split; auto. constructor; auto. intros I. apply N, in_or_app. now left.
Qed.
Lemma given_cells key_of manners env i n cells e low high : add_node key_of manners env i n = Some (cells, e) ->
  what n = Given low high ->
  map fst cells = map (key_of i) (positions (extents n)).
Proof.
  intros H W. unfold add_node, new_cells in H. destruct (negb _); [discriminate|]. rewrite W in H. cbn [summed] in H.
  destruct (all_some _) as [cs|] eqn:K; [|discriminate]. injection H as <- _. apply all_some_map in K.
  rewrite <- (map_map Some (fun o => match o with Some c => fst c | None => key_of i [] end)), <- K, map_map.
  apply map_ext. intros p. unfold new_cell. now rewrite W.
Qed.
Lemma keys_for key_of manners input nodes : forall env part env', compile key_of manners nodes env =
  Some (part, env') -> NoDup (map fst part) ->
  exists at_key : key -> R, forall j n, nth_error nodes j = Some n -> held key_of at_key input (length env + j) n.
Proof.
  induction nodes as [|n nodes IH]; intros env part env' C D; [exists (fun _ => 0); intros [|j] m; discriminate|].
  cbn [compile] in C. destruct (add_node _ _ _ _ _) as [[cells e]|] eqn:N; [|discriminate].
  destruct (compile _ _ nodes _) as [[rest env2]|] eqn:K; [|discriminate]. injection C as <- <-.
  rewrite map_app in D. destruct (IH _ _ _ K (proj2 (distinct_parts _ _ D))) as [f F].
  assert (Rest : forall j m low high p, nth_error nodes j = Some m -> what m = Given low high ->
    In p (positions (extents m)) ->
    In (key_of (length (env ++ [e]) + j)%nat p) (map fst rest)).
  { clear - K. revert e env rest env2 K. induction nodes as [|m nodes IHn];
      intros e env rest env2 K [|j] m' low high p J W P; try discriminate.
    - injection J as ->. cbn [compile] in K. destruct (add_node _ _ _ _ _) as [[cs e']|] eqn:N; [|discriminate].
      destruct (compile _ _ nodes _) as [[r e2]|]; [|discriminate]. injection K as <- <-. rewrite map_app.
      apply in_or_app. left.
      rewrite Nat.add_0_r. erewrite given_cells; eauto. now apply in_map.
    - cbn [compile nth_error] in *. destruct (add_node _ _ _ _ _) as [[cs e']|] eqn:N; [|discriminate].
      destruct (compile _ _ nodes _) as [[r e2]|] eqn:K2; [|discriminate]. injection K as <- <-. rewrite map_app.
      apply in_or_app. right.
      replace (length (env ++ [e]) + S j)%nat with (length ((env ++ [e]) ++ [e']) + j)%nat by
        (rewrite (app_length (env ++ [e])); cbn [length]; Lia.lia).
      eapply IHn; eauto. }
  destruct (what n) as [low high| | | | | | | | | | | | |] eqn:W.
  2-14: exists f; intros [|j] m M; [injection M as <-; intros lo hi p X; congruence|];
    replace (length env + S j)%nat with (length (env ++ [e]) + j)%nat by (rewrite app_length; cbn [length]; Lia.lia);
      apply F; exact M.
  set (i := length env) in *. pose proof (given_cells _ _ _ _ _ _ _ _ _ N W) as Ks.
  exists (fun k => match find (fun q => if key_dec (key_of i q) k then true else false) (positions (extents n))
    with Some q => input i q | None => f k end).
  intros [|j] m M lo hi p X P.
  - injection M as <-. rewrite Nat.add_0_r. rewrite (find_own key_dec (key_of i)); auto. rewrite <- Ks.
    exact (proj1 (distinct_parts _ _ D)).
  - replace (i + S j)%nat with (length (env ++ [e]) + j)%nat by (rewrite app_length; unfold i; cbn [length]; Lia.lia).
    destruct (find _ _) as [q|] eqn:Q; [|eapply F; eauto]. apply find_some in Q. destruct Q as [Q E].
    destruct (key_dec (key_of i q) _) as [E'|]; [|discriminate]. exfalso. pose proof (Rest j m lo hi p M X P) as R.
    rewrite <- E' in R.
    assert (L : In (key_of i q) (map fst cells)) by (rewrite Ks; now apply in_map). clear - D L R.
    induction (map fst cells) as [|a l IHl]; [destruct L|]. inversion_clear D as [|? ? N D']. destruct L as [->|L];
      [apply N, in_or_app; now right | auto].
Qed.
Lemma ordered_distinct net : forall seen, ordered net seen = true -> NoDup (map fst net) /\
  forall k, In k (map fst net) -> get k seen = None.
Proof.
  induction net as [|[k x] net IH]; intros seen O; cbn [ordered map] in *; [split; [constructor | intros _ []]|].
  apply andb_prop in O as [O1 O]. apply andb_prop in O1 as [N _]. destruct (IH _ O) as [D F].
  assert (K : get k seen = None) by (destruct (get k seen); [discriminate | reflexivity]).
  split; [constructor; auto; intros I; specialize (F _ I); rewrite get_put_same in F; discriminate|].
  intros j [<-|J]; auto. specialize (F _ J). destruct (key_dec k j) as [->|E];
    [rewrite get_put_same in F; discriminate | now rewrite get_put_other in F].
Qed.
Lemma input_cells key_of manners nodes : forall env part env', compile key_of manners nodes env = Some (part, env') ->
  forall k low high, In (k, Input low high) part -> exists j n lo hi p, nth_error nodes j = Some n /\
    what n = Given lo hi /\
    In p (positions (extents n)) /\ k = key_of (length env + j)%nat p /\ low = lo p /\ high = hi p.
Proof.
  induction nodes as [|n nodes IH]; intros env part env' C k low high I; cbn [compile] in C;
    [injection C as <- _; destruct I|].
  destruct (add_node _ _ _ _ _) as [[cells e]|] eqn:N; [|discriminate].
  destruct (compile _ _ nodes _) as [[rest env2]|] eqn:K; [|discriminate].
  injection C as <- <-. apply in_app_or in I. destruct I as [I|I].
  - exists O, n. assert (S : exists sums p, In p (positions (extents n)) /\
      new_cell manners (reader env) (length env) n sums p = Some (Input low high) /\ k = key_of (length env) p).
    { unfold add_node, new_cells in N. destruct (negb _); [discriminate|]. set
        (sums := match summed _ _ _ _ with Some _ => _ | None => _ end) in N. exists sums.
      assert (G : forall cs, all_some (map (fun p => match new_cell manners (reader env) (length env) n sums p
        with Some c => Some (key_of (length env) p, c) | None => None end) (positions (extents n))) = Some cs ->
        In (k, Input low high) cs -> exists p, In p (positions (extents n)) /\
          new_cell manners (reader env) (length env) n sums p = Some (Input low high) /\ k = key_of (length env) p).
      { intros cs A J. apply all_some_map in A. apply (in_map Some) in J. rewrite <- A in J. apply in_map_iff in
          J. destruct J as [p [E P]]. exists p.
        destruct (new_cell _ _ _ _ _ _) as [c|]; [|discriminate]. injection E as -> ->. auto. }
      destruct sums as [f|]; [destruct (celled n)|];
        try (match type of N with context [all_some ?l] => destruct (all_some l) as [cs|] eqn:A end; [|discriminate];
        injection N as <- _; eauto).
      injection N as <- _. destruct I. }
    destruct S as [sums [p [P [S E]]]]. unfold new_cell in S.
    destruct (what n) as [lo hi| | | |w x|x|f x| | | | | | |];
      try (destruct sums as [h|]; [destruct (h p); discriminate | discriminate]);
      try (destruct (cell_at _ _); discriminate); try (destruct (all_some _) as [[|? ?]|]; discriminate).
    injection S as <- <-. exists lo, hi, p. rewrite Nat.add_0_r. repeat split; auto.
  - destruct (IH _ _ _ K _ _ _ I) as [j [m [lo [hi [p [A [B [P [E F]]]]]]]]]. exists (S j), m, lo, hi, p.
    repeat split; try tauto.
    rewrite E. f_equal. rewrite app_length. cbn [length]. Lia.lia.
Qed.

(* Every cell of an entry is a cell of the network. *)
Definition in_net (net : network) (e : entry) : Prop :=
  forall q k, In q (positions (extent e)) -> cell_at e q = Some k -> exists x, In (k, x) net.
Lemma in_net_more net more e : in_net net e -> in_net (net ++ more) e.
Proof. intros H q k Q K. destruct (H q k Q K) as [x X]. exists x. apply in_or_app. now left. Qed.
Lemma node_in_net key_of manners env i n cells e net : add_node key_of manners env i n = Some (cells, e) ->
  (forall x, in_net net (env x)) -> in_net (net ++ cells) e.
Proof.
  intros H E. unfold add_node, new_cells in H. destruct (fits env n) eqn:F; [|discriminate]. cbn [negb] in H.
  set (sums := match summed _ _ _ _ with Some _ => _ | None => _ end) in H.
  assert (G : forall cs, all_some (map (fun p => match new_cell manners env i n sums p
    with Some c => Some (key_of i p, c) | None => None end) (positions (extents n))) = Some cs ->
    forall p, In p (positions (extents n)) -> exists x, In (key_of i p, x) (net ++ cs)).
  { intros cs A p P. destruct (cells_in (fun p => new_cell manners env i n sums p) _ (key_of i) cs A p P) as [c [_ I]].
      exists c. apply in_or_app. now right. }
  destruct sums as [f|]; [destruct (celled n)|].
  1, 3: match type of H with context [all_some ?l] => destruct (all_some l) as [cs|] eqn:A end; [|discriminate];
    injection H as <- <-;
    intros q k Q [= <-]; eauto.
  injection H as <- <-. intros q k Q. cbn [cell_at extent] in *. destruct (what n) eqn:W; try discriminate.
  unfold fits in F. rewrite W in F.
  rewrite forallb_forall in F. specialize (F q Q). destruct (origin_of _ _ l q) as [x p|c]; [|discriminate]. intros K.
  rewrite app_nil_r. eapply E; eauto. now apply inside_in.
Qed.
Lemma reader_in_net net env : Forall (in_net net) env -> forall x, in_net net (reader env x).
Proof.
  intros H x. unfold reader. destruct (Nat.lt_ge_cases x (length env)) as [L|L].
  - rewrite Forall_forall in H. apply H, nth_In, L.
  - rewrite nth_overflow by exact L. intros q k _. discriminate.
Qed.
Lemma compiled_in_net key_of manners nodes : forall env net part env', compile key_of manners nodes env =
  Some (part, env') ->
  Forall (in_net net) env -> Forall (in_net (net ++ part)) env'.
Proof.
  induction nodes as [|n nodes IH]; intros env net part env' C E; cbn [compile] in C;
    [injection C as <- <-; now rewrite app_nil_r|].
  destruct (add_node _ _ _ _ _) as [[cells e]|] eqn:N; [|discriminate].
  destruct (compile _ _ nodes _) as [[rest env2]|] eqn:K; [|discriminate].
  injection C as <- <-. rewrite app_assoc. eapply IH; [exact K|]. apply Forall_app. split.
  - eapply Forall_impl; [|exact E]. intros a. apply in_net_more.
  - constructor; [|constructor]. eapply node_in_net; eauto using reader_in_net.
Qed.

(* What is accepted holds of the graph itself: at no input of the box do its values lie in an excluded set. *)
Theorem graph_exact key_of nodes out unit groups at_input : check_graph key_of nodes out unit groups = Some true ->
  0 <= real unit ->
  in_box nodes at_input -> forall alts p rows, In (alts, p) groups -> In rows alts ->
    ~ in_rows (graph_values nodes at_input out) rows.
Proof.
  unfold check_graph. intros C U B alts p rows G R. destruct (manners_of nodes [out]) as [manners|]; [|discriminate].
  destruct (compile key_of manners nodes []) as [[net env]|] eqn:K; [|discriminate].
  destruct (all_some _) as [placed_groups|] eqn:P; [|discriminate]. injection C as C. pose proof C as O.
  unfold check in O.
  apply andb_prop in O as [O _]. apply andb_prop in O as [O _]. destruct (ordered_distinct _ _ O) as [D _].
  destruct (keys_for _ _ at_input _ _ _ _ K D) as [f F]. cbn [length Nat.add] in F.
  destruct (exact_values f net Empty (fun _ => 0) O) as [g [_ E]].
  destruct (compiled_values _ _ _ _ _ _ _ _ K E F) as [_ V].
  apply all_some_map in P. assert (I : In (placed_group (reader env out) (alts, p)) (map Some placed_groups)) by
    (rewrite <- P; now apply in_map).
  apply in_map_iff in I. destruct I as [[alts' p'] [Q I]]. unfold placed_group in Q. cbn [fst snd] in Q.
  destruct (all_some _) as [as2|] eqn:A; [|discriminate]. injection Q as -> ->. apply all_some_map in A.
  assert (J : In (all_some (map (placed (reader env out)) rows)) (map Some as2)) by
    (rewrite <- A; now apply (in_map (fun rows => all_some (map (placed (reader env out)) rows)))).
  apply in_map_iff in J. destruct J as [rows' [J L]]. symmetry in J. apply all_some_map in J.
  (* each row of cells is the row of positions *)
  assert (Row : forall r r', placed (reader env out) r = Some r' ->
    row_value g (coefs r') = row_sum (graph_values nodes at_input out) r /\ limit r' = bound r /\
    forall k, In k (map fst (coefs r')) -> exists q, In q (positions (extent (reader env out))) /\
      cell_at (reader env out) q = Some k).
  { intros r r'. unfold placed. destruct (all_some _) as [cs|] eqn:S;
      [|discriminate]. intros H. injection H as <-. cbn [coefs limit].
    apply all_some_map in S. unfold row_value, row_sum. revert cs S. induction (coefs_at r) as [|[q c] ps IH];
      intros [|[k c'] cs]; cbn [map fst snd]; try discriminate.
    - intros _. repeat split; auto. intros k [].
    - intros S. injection S as S1 S2. destruct (IH _ S2) as [A1 [_ A2]]. unfold cell_of in S1.
      destruct (inside _ q) eqn:In_; [|discriminate].
      destruct (cell_at (reader env out) q) as [k2|] eqn:Ck; [|discriminate]. injection S1 as -> ->.
      apply inside_in in In_.
      pose proof (V _ _ _ In_ Ck) as Vk. repeat split.
      + cbn [CheckTrees.sum_over fold_right fst snd]. rewrite Vk. unfold graph_values at 1. cbn. rewrite A1.
        reflexivity.
      + intros k3 [<-|H3]; eauto. }
  intros H. refine (check_exact net unit placed_groups f g C U _ E as2 p rows' I L _ _).
  - intros k low high Ik. destruct (input_cells _ _ _ _ _ _ K _ _ _ Ik) as
      [j [n [lo [hi [q [N [W [Pq [-> [-> ->]]]]]]]]]]. cbn [length Nat.add].
    rewrite (F _ _ N _ _ _ W Pq). eapply B; eauto.
  - intros k Ik. unfold read_by in Ik. apply in_flat_map in Ik. destruct Ik as [r' [R' Ik]].
    assert (X : In (Some r') (map (placed (reader env out)) rows)) by (rewrite J; now apply in_map).
    apply in_map_iff in X. destruct X as [r [X _]]. destruct (Row _ _ X) as [_ [_ Y]]. destruct (Y _ Ik) as [q [Q1 Q2]].
    exact (reader_in_net _ _ (compiled_in_net _ _ _ _ [] _ _ K (Forall_nil _)) out q k Q1 Q2).
  - intros r' R'. assert (X : In (Some r') (map (placed (reader env out)) rows)) by (rewrite J; now apply in_map).
    apply in_map_iff in X. destruct X as [r [X Y]]. destruct (Row _ _ X) as [-> [-> _]]. now apply H.
Qed.
