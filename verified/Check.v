(* The checker of certificates, and its theorem: if it answers true, no execution overflows, and none has outputs in
   any of the excluded sets.

   A question is a network, a unit roundoff, and groups of alternatives (sets of outputs, given by rows), each with a
   plan: cuts of a cell's range, cuts by the winner of a maximum, cells bounded anew, and at the leaves weights of
   rows, slopes and multipliers. All of a plan are hints: wrong ones make the answer false, never a false statement
   true. `check` first asks that the network is in order and that each cell is proper, so that it has executions
   (CheckExact.v), then bounds all cells, then walks through the plans. `check_sound` is the theorem. *)
From Coq Require Import Reals ZArith List Lra Bool.
From Specgrad Require Import CheckNumber CheckTrie CheckTrees CheckBend CheckExecution CheckSums CheckBackward
  CheckPieces CheckLayers CheckForward.
Import ListNotations.
Open Scope R_scope.

(* --- the program --- *)
(* A set of outputs: all rows have coefs . y <= limit. *)
Record row := Row { coefs : list (key * number); limit : number }.
Definition alternative := list row.

(* A proof on a part of all executions. Cut: the reference of a cell is at most p, or at least p. Anew: bound all cells
   again on what is known here. Either: the first proves it, or the second. Win: the reference of maximum k is that of
   cell t, or it is not. Reasons: per alternative weights of its rows, slopes, multipliers of what is known of cells,
   and of maxima less cells that they read, and relus that are bounded together, by the cell where the way back meets
   them. *)
Record reason := Reason { weights : list number; slopes : trie hint; pulls : list (key * number);
  leads : list (key * key * number); joint : trie group }.
Inductive plan :=
  | Reasons (reasons : list reason)
  | Cut (k : key) (p : number) (below above : plan)
  | Win (k t : key) (yes no : plan)
  | Anew (tight : trie bool) (lines : trie hint) (next : plan)
  | Either (one other : plan).

Definition is_some {A} (o : option A) : bool := match o with None => false | Some _ => true end.
Fixpoint ordered (net : network) (seen : trie bool) : bool :=
  match net with
  | [] => true
  | (k, x) :: net => negb (is_some (get k seen)) && forallb (fun j => is_some (get j seen)) (sources x) &&
    ordered net (put k (Some true) seen)
  end.

Fixpoint add_row (w : number) (cs : list (key * number)) (f : form) : form :=
  match cs with [] => f | (k, c) :: cs => add_row w cs (add_at k (mul w c) f) end.
Fixpoint objective (ws : list number) (rows : alternative) (f : state) : option state :=
  match ws, rows with
  | [], [] => Some f
  | w :: ws, r :: rows => if negative w then None else objective ws rows
    (add_row w (coefs r) (fst f), sub (snd f) (mul w (limit r)))
  | _, _ => None
  end.
Fixpoint charge (f : form) (far : key -> option number) : option number :=          (* the sum of abs(a) * deviation *)
  match f with
  | Empty => Some zero
  | Fork h e o => match charge e (fun k => far (Even k)), charge o (fun k => far (Odd k)) with
    | Some x, Some y => match h with
      | None => Some (add x y)
      | Some a => match far Here with None => None | Some d => Some (add (mul (abs_of a) (abs_of d)) (add x y)) end
      end
    | _, _ => None
    end
  end.
Fixpoint pulled (g : ranges) (ps : list (key * number)) (f : state) : option state :=
  match ps with
  | [] => Some f
  | (k, b) :: ps => match get k g with
    | None => None
    | Some (l, h) => pulled g ps (add_at k (neg b) (fst f), add (snd f) (mul b (if negative b then h else l)))
    end
  end.
Fixpoint maxima (net : network) (m : trie (list key)) : trie (list key) :=
  match net with [] => m | (k, x) :: net => maxima net (put k (Some (contenders x)) m) end.
Definition is_in (k : key) (ks : list key) : bool := if in_dec key_dec k ks then true else false.
Fixpoint led (m : trie (list key)) (ps : list (key * key * number)) (f : state) : option state :=
  match ps with
  | [] => Some f
  | (k, j, b) :: ps => match get k m with
    | None => None
    | Some ks => if negative b || negb (is_in j ks) then None
      else led m ps (add_at j b (add_at k (neg b) (fst f)), snd f)
    end
  end.
Definition at_once (layers : trie layer) facts es (gs : trie group) : key -> option (state -> option state) :=
  let pieces := jumps facts es gs in fun k => match pieces k with None => layered layers facts k | some => some end.
Definition excluded (m : trie (list key)) (g : known) (rows : alternative) (r : reason) : bool :=
  match objective (weights r) rows (Empty, zero) with
  | None => false
  | Some (f, c) => match charge f (fun k => get k (aparts g)) with
    | None => false
    | Some d => match pulled (facts g) (pulls r) (f, sub c d) with
      | None => false
      | Some f => match led m (leads r) f with
        | None => false
        | Some (f, c) => match back (facts g) (slopes r) (at_once (layers g) (facts g) (entries g) (joint r))
          (entries g) f c with None => false | Some b => positive b end
        end
      end
    end
  end.
Fixpoint all_excluded (m : trie (list key)) (g : known) (alts : list alternative) (rs : list reason) : bool :=
  match alts, rs with
  | [], [] => true
  | a :: alts, r :: rs => excluded m g a r && all_excluded m g alts rs
  | _, _ => false
  end.
Definition with_range (g : known) (k : key) (l h : number) : known :=
  Known (put k (Some (l, h)) (facts g)) (aparts g) (entries g) (void g || negb (at_most l h)) (among g) (layers g).
Fixpoint contested (k : key) (es : list entry) : option (key * list key) :=
  match es with
  | [] => None
  | (i, x, _) :: es => if key_dec i k then match x with Max j js => Some (j, js) | _ => None end else contested k es
  end.
Definition others (t : key) (ks : list key) : list key := filter (fun i => if key_dec i t then false else true) ks.
Definition with_winners (g : known) (k : key) (ks : list key) (r : key) (rs : list key) : known :=
  let es := map (fun e : entry => if key_dec (fst (fst e)) k then (k, Max r rs, snd e) else e) (entries g) in
  let w := put k (Some (r, rs)) (among g) in
  match get k (facts g) with
  | None => Known (facts g) (aparts g) es (void g) w (layers g)
  | Some (l, h) =>
      let (l, h) := met (facts g) r rs l h in
      Known (put k (Some (l, h)) (won (facts g) l h ks r rs)) (aparts g) es (void g || negb (at_most l h)) w (layers g)
  end.

Section Program.
Variables (net : network) (made : rows) (runs : trie nat) (unit : number) (m : trie (list key)).
Fixpoint prove (alts : list alternative) (p : plan) (g : known) : bool :=
  if void g then true else
  match p with
  | Reasons rs => all_excluded m g alts rs
  | Cut k p below above => match get k (facts g) with
    | None => false
    | Some (l, h) => prove alts below (with_range g k l (smaller h p)) &&
      prove alts above (with_range g k (larger l p) h)
    end
  | Win k t yes no => match contested k (entries g) with
    | None => false
    | Some (j, js) => prove alts yes (with_winners g k (j :: js) t []) &&
        match others t (j :: js) with [] => true | r :: rs => prove alts no (with_winners g k (j :: js) r rs) end
    end
  | Either p q => prove alts p g || prove alts q g
  | Anew tight lines next => match forward made runs unit tight lines (facts g) (among g) net with None => false
    | Some g => prove alts next g end
  end.
End Program.
(* A cell that some execution has: its range is not empty, its sum has a product, and nothing that it may be off by is
   negative. *)
Definition proper (x : cell) : bool :=
  match x with
  | Input low high => at_most low high
  | Sum s => match terms s with [] => false | _ => negb (negative (blur s)) && at_most one (spread s) end
  | Bend _ f => negb (negative (relative f)) && negb (negative (absolute f))
  | Relu _ | Max _ _ => true
  end.
Definition check (net : network) (unit : number) (groups : list (list alternative * plan)) : bool :=
  ordered net Empty && forallb (fun kx => proper (snd kx)) net &&
  let made := rows_of net Empty in let runs := runs_of net [] [] Empty in
  match forward made runs unit Empty Empty Empty Empty net with
  | None => false
  | Some g => let m := maxima net Empty in forallb (fun ap => prove net made runs unit m (fst ap) (snd ap) g) groups
  end.

(* --- what it means --- *)
Definition row_value (y : key -> R) (cs : list (key * number)) : R :=
  sum_over (fun kc => real (snd kc) * y (fst kc)) cs.
Definition read_by (rows : alternative) : list key := flat_map (fun r => map fst (coefs r)) rows.
Definition outputs_in (y : key -> R) (rows : alternative) : Prop := forall r, In r rows ->
  row_value y (coefs r) <= real (limit r).

Section Meaning.
Variables (net : network) (unit : number) (stored : key -> R) (fetched : key -> nat -> R).
Let holds := possible net (real unit) stored fetched.

Lemma ordered_fresh part : forall seen k x, ordered part seen = true -> In (k, x) part -> get k seen = None.
Proof.
  induction part as [|[j z] part IH]; intros seen k x O; simpl in *; [tauto|]. apply andb_prop in O as [O1 O].
  apply andb_prop in O1 as [N _].
  intros [E|H]; [injection E as <- <-; destruct (get j seen); [discriminate | auto]|].
  specialize (IH _ _ _ O H). destruct (key_dec j k) as [<-|D];
    [rewrite get_put_same in IH; discriminate | now rewrite get_put_other in IH].
Qed.
Lemma ordered_unique part : forall seen, ordered part seen = true -> forall k x y, In (k, x) part -> In (k, y) part ->
  x = y.
Proof.
  induction part as [|[j z] part IH]; intros seen O k x y; simpl in *; [tauto|]. apply andb_prop in O as [_ O].
  intros [E|H] [F|G]; try congruence; [injection E as <- <- | injection F as <- <- | eapply IH; eauto];
    eapply ordered_fresh in O; eauto; rewrite get_put_same in O; discriminate.
Qed.

Lemma rows_of_ok ref part : forall t, (forall k x y, In (k, x) net -> In (k, y) net -> x = y) -> incl part net ->
  (forall k s r, In (k, Sum s) net -> get k t = Some r -> meaning ref r = line ref (terms s)) ->
  forall k s r, In (k, Sum s) net -> get k (rows_of part t) = Some r -> meaning ref r = line ref (terms s).
Proof.
  intros t U. revert t. induction part as [|[j x] part IH]; intros t P T; simpl; auto.
  assert (P' : incl part net) by (intros a H; apply P; now right). destruct x as [l h|s'|i|i is|i b];
    try exact (IH t P' T). apply (IH _ P').
  intros k s r K. destruct (key_dec j k) as [<-|D]; [rewrite get_put_same | rewrite get_put_other; eauto].
  pose proof (U _ _ _ K (P _ (or_introl eq_refl))) as E. injection E as ->. intros [= <-].
  rewrite add_terms_meaning. unfold meaning; simpl. autorewrite with real. ring.
Qed.

(* References exist: each cell's from those before it. *)
Definition update (f : key -> R) (k : key) (v : R) (j : key) : R := if key_dec k j then v else f j.
Lemma line_agrees f g read : forall ps n, (forall j, In j (sources (Sum (Sums ps zero 0 zero false))) -> f j = g j) ->
  mixed f read n ps = mixed g read n ps.
Proof.
  induction ps as [|p ps IH]; intros n H; simpl; auto. simpl in H.
  rewrite (IH (S n)) by (intros; apply H, in_or_app; auto).
  destruct (source p); auto. destruct (shared p); auto. rewrite H; auto. now left.
Qed.
Lemma reference_agrees f g k x : (forall j, In j (sources x) -> f j = g j) ->
  reference_of stored fetched f k x = reference_of stored fetched g k x.
Proof.
  destruct x as [l h|s|j|j js|j b]; simpl; intros H; auto.
  - destruct (once s); auto. now apply line_agrees.
  - now rewrite H by auto.
  - rewrite H by auto. f_equal. apply map_ext_in. auto.
  - now rewrite H by auto.
Qed.
Lemma references part : forall seen f, ordered part seen = true ->
  exists g, (forall j, get j seen <> None -> g j = f j) /\ forall k x, In (k, x) part ->
    g k = reference_of stored fetched g k x.
Proof.
  induction part as [|[k x] part IH]; intros seen f O; simpl in *; [exists f; tauto|].
  apply andb_prop in O as [O1 O]. apply andb_prop in O1 as [N S]. rewrite forallb_forall in S.
  assert (Fresh : get k seen = None) by (destruct (get k seen); [discriminate | auto]).
  assert (Old : forall j, get j seen <> None -> j <> k) by (intros j H ->; auto).
  destruct (IH (put k (Some true) seen) (update f k (reference_of stored fetched f k x)) O) as [g [A B]]. exists g.
  assert (Same : forall j, get j seen <> None -> g j = f j).
  { intros j H. rewrite A; [unfold update; destruct (key_dec k j) as [->|]; auto; now elim (Old j)|].
    rewrite get_put_other; auto. intros ->. now apply (Old j). }
  split; auto. intros j z [E|H]; auto. injection E as <- <-.
  rewrite A by (rewrite get_put_same; discriminate). unfold update. destruct (key_dec k k); [|tauto].
  apply reference_agrees. intros j H. symmetry. apply Same. specialize (S j H). destruct (get j seen);
    [discriminate | discriminate].
Qed.

Section Reference.
Variable ref : key -> R.
Hypothesis unique : forall k x y, In (k, x) net -> In (k, y) net -> x = y.
Hypothesis executed : execution net (real unit) stored fetched.
Hypothesis reference : forall k x, In (k, x) net -> ref k = reference_of stored fetched ref k x.
Variables (made : rows) (runs : trie nat).
Hypothesis rows_made : forall k s r, In (k, Sum s) net -> get k made = Some r -> meaning ref r = line ref (terms s).
Let fine := ok net unit stored fetched ref.
Variable m : trie (list key).
Hypothesis greatest : forall k ks, get k m = Some ks -> forall j, In j ks -> ref j <= ref k.

Lemma total_row (y : key -> R) w cs : forall f, form_at (add_row w cs f) y = form_at f y + real w * row_value y cs.
Proof.
  induction cs as [|[k c] cs IH]; intros f; simpl; [unfold row_value; simpl; ring|].
  rewrite IH, total_add, real_mul. unfold row_value; simpl. ring.
Qed.
Lemma objective_ok y ws : forall rows f f', objective ws rows f = Some f' -> outputs_in y rows ->
  meaning y f' <= meaning y f.
Proof.
  induction ws as [|w ws IH]; intros [|r rows] f f' E H; simpl in E; try discriminate; [injection E as <-; lra|].
  destruct (negative w) eqn:W; [discriminate | apply not_negative in W].
  apply IH in E; [|intros q Hq; apply H; now right]. eapply Rle_trans; [exact E|]. unfold meaning; simpl.
  rewrite total_row, real_sub, real_mul.
  pose proof (Rmult_le_compat_l _ _ _ W (H r (or_introl eq_refl))). lra.
Qed.
Lemma charge_ok f : forall far (y r : key -> R) d, charge f far = Some d ->
  (forall k a, far k = Some a -> Rabs (y k - r k) <= Rabs (real a)) -> form_at f r - real d <= form_at f y.
Proof.
  induction f as [|h e He o Ho]; intros far y r d; simpl; [intros [= <-]; rewrite real_zero; lra|].
  destruct (charge e _) as [x|] eqn:X; [|discriminate]. destruct (charge o _) as [z|] eqn:Z; [|discriminate].
  intros E N.
  specialize (He _ (fun k => y (Even k)) (fun k => r (Even k)) _ X (fun k => N (Even k))).
  specialize (Ho _ (fun k => y (Odd k)) (fun k => r (Odd k)) _ Z (fun k => N (Odd k))).
  destruct h as [a|]; [|injection E as <-; rewrite real_add; simpl; lra].
  destruct (far Here) as [b|] eqn:F; [|discriminate]. injection E as <-. rewrite !real_add, real_mul, !real_abs_of.
  simpl coefficient.
  assert (real a * (r Here - y Here) <= Rabs (real a) * Rabs (real b)); [|lra].
  eapply Rle_trans; [apply Rle_abs|]. rewrite Rabs_mult. apply Rmult_le_compat_l; [apply Rabs_pos|].
  rewrite Rabs_minus_sym. auto.
Qed.
Lemma pulled_ok g : (forall k l h, get k g = Some (l, h) -> real l <= ref k <= real h) ->
  forall ps f f', pulled g ps f = Some f' -> meaning ref f' <= meaning ref f.
Proof.
  intros I. induction ps as [|[k b] ps IH]; intros f f'; simpl; [intros [= <-]; lra|].
  destruct (get k g) as [[l h]|] eqn:G; [|discriminate]. intros E. apply IH in E. eapply Rle_trans; [exact E|].
  unfold meaning; simpl. rewrite total_add, real_add, real_neg. pose proof (ends b l h (ref k) (I _ _ _ G)). lra.
Qed.

Lemma led_ok ps : forall f f', led m ps f = Some f' -> meaning ref f' <= meaning ref f.
Proof.
  induction ps as [|[[k j] b] ps IH]; intros f f'; simpl; [intros [= <-]; lra|].
  destruct (get k m) as [ks|] eqn:G; [|discriminate]. destruct (negative b) eqn:B; [discriminate|].
  apply not_negative in B.
  unfold is_in. destruct (in_dec key_dec j ks) as [H|]; [|discriminate]. simpl. intros E. apply IH in E.
  eapply Rle_trans; [exact E|].
  unfold meaning; simpl. rewrite !total_add, real_neg. pose proof (Rmult_le_compat_l _ _ _ B (greatest _ _ G _ H)). lra.
Qed.

Lemma at_once_ok ls f es gs : in_range ref f -> all_layers_ok ref ls -> Forall (entry_ok ref) es ->
  forall k j s s', at_once ls f es gs k = Some j -> j s = Some s' -> meaning ref s' <= meaning ref s.
Proof.
  intros I L E k j s s'. unfold at_once. destruct (jumps _ _ _ k) as [p|] eqn:J;
    [|now apply (layered_ok f ref I ls L k)].
  intros [= <-]. now apply (jumps_ok f ref I es gs E k).
Qed.
Lemma excluded_ok g rows r y : fine g -> excluded m g rows r = true ->
  (forall k, In k (read_by rows) -> holds k (y k)) -> ~ outputs_in y rows.
Proof.
  intros [I [N [E [_ [_ Ls]]]]] X Y H. unfold excluded in X.
  set (z := fun k => if in_dec key_dec k (read_by rows) then y k else ref k).
  assert (Same : forall r, In r rows -> row_value z (coefs r) = row_value y (coefs r)).
  { intros q Hq. assert (J : forall k c, In (k, c) (coefs q) -> In k (read_by rows)).
    { intros k c Hc. apply in_flat_map. exists q. split; auto. now apply (in_map fst) in Hc. }
    unfold row_value. induction (coefs q) as [|[k c] cs IHc]; simpl; auto.
    rewrite IHc by (intros; eapply J; right; eauto).
    unfold z. destruct (in_dec key_dec k (read_by rows)) as [_|C]; auto. elim C. apply (J k c). now left. }
  assert (Hz : outputs_in z rows) by (intros q Hq; rewrite Same; auto).
  destruct (objective (weights r) rows (Empty, zero)) as [[f c]|] eqn:O; [|discriminate]. apply (objective_ok z) in O;
    auto.
  destruct (charge f _) as [d|] eqn:C; [|discriminate]. apply (charge_ok f _ z ref) in C.
  2: { intros k a G. unfold z. destruct (in_dec key_dec k (read_by rows)) as [Hk|_];
    [eapply Rle_trans; [apply (N k a _ G), Y, Hk | apply Rle_abs]|].
       rewrite Rminus_diag_eq, Rabs_R0 by auto. apply Rabs_pos. }
  destruct (pulled _ _ _) as [[f0 c0]|] eqn:P; [|discriminate]. apply (pulled_ok (facts g) I) in P.
  destruct (led _ _ _) as [[f1 c1]|] eqn:L; [|discriminate]. apply led_ok in L.
  destruct (back _ _ _ _ f1 c1) as [b|] eqn:B; [|discriminate].
  apply (back_ok _ _ ref I _ _ E (at_once_ok _ _ _ (joint r) I Ls E)) in B. apply positive_real in X.
  unfold meaning in *; simpl in *. rewrite real_sub, real_zero in *. lra.
Qed.
Lemma all_excluded_ok g y : fine g -> forall alts rs, all_excluded m g alts rs = true ->
  forall rows, In rows alts -> (forall k, In k (read_by rows) -> holds k (y k)) -> ~ outputs_in y rows.
Proof.
  intros O. induction alts as [|a alts IH]; intros [|r rs] E rows H; simpl in *; try tauto; try discriminate.
  apply andb_prop in E as [E F]. destruct H as [<-|H]; [eapply excluded_ok; eauto | eapply IH; eauto].
Qed.
Lemma with_range_ok g k l h : fine g -> real l <= ref k <= real h -> fine (with_range g k l h).
Proof.
  intros [I [N [E [V [W Y]]]]] R. split; [|split; [auto | split; [auto | split; [|split; auto]]]]; simpl.
  - now apply put_in_range.
  - rewrite V. simpl. destruct (at_most l h) eqn:A; auto. apply not_at_most in A. lra.
Qed.
Lemma contested_ok k es j js : Forall (entry_ok ref) es -> contested k es = Some (j, js) ->
  ref k = maximum (ref j) (map ref js).
Proof.
  induction 1 as [|[[i x] e] es E _ IH]; simpl; [discriminate|]. destruct (key_dec i k) as [<-|]; auto.
  destruct x; try discriminate. intros [= -> ->]. exact E.
Qed.
Lemma largest_is v vs w : (forall x, In x (v :: vs) -> x <= w) -> In w (v :: vs) -> w = maximum v vs.
Proof.
  intros A H. destruct (largest_fold vs v) as [B [C D]]. apply Rle_antisym.
  - destruct H as [<-|H]; auto.
  - apply A. destruct D as [->|D]; [now left | now right].
Qed.
Lemma with_winners_ok g k ks r rs : fine g -> (forall j, In j ks -> ref j <= ref k) ->
  ref k = maximum (ref r) (map ref rs) ->
  fine (with_winners g k ks r rs).
Proof.
  intros [I [N [E [V [W Y]]]]] A M. unfold with_winners. set (es := map _ _). set (w := put k _ _).
  assert (Es : Forall (entry_ok ref) es).
  { unfold es. clear - E M. induction E as [|[[i x] e] l He _ IH]; simpl; constructor;
      auto. destruct (key_dec i k) as [<-|]; auto. }
  assert (Ww : maximal ref w).
  { intros i a b G. unfold w in G. destruct (key_dec k i) as [<-|D];
      [rewrite get_put_same in G; injection G as <- <-; auto | rewrite get_put_other in G by auto; eauto]. }
  destruct (get k (facts g)) as [[l h]|] eqn:G; [|exact (conj I (conj N (conj Es (conj V (conj Ww Y)))))].
  destruct (met (facts g) r rs l h) as [l1 h1] eqn:B. apply (met_ok ref _ k) in B; auto.
  split; [|split; [auto | split; [auto | split; [|split; auto]]]]; simpl.
  - apply put_in_range; auto. eapply won_ok; eauto.
  - rewrite V. simpl. destruct (at_most l1 h1) eqn:Q; auto. apply not_at_most in Q. lra.
Qed.
Lemma prove_ok y alts p : forall g, fine g -> prove net made runs unit m alts p g = true ->
  forall rows, In rows alts -> (forall k, In k (read_by rows) -> holds k (y k)) -> ~ outputs_in y rows.
Proof.
  induction p as [rs | k p below IHb above IHa | k t yes IHy no IHn | tight lines next IH | p IHp q IHq]; intros g O;
    pose proof O as [I [_ [Es [V [W _]]]]]; cbn [prove]; rewrite V.
  - now apply all_excluded_ok.
  - destruct (get k (facts g)) as [[l h]|] eqn:G; [|discriminate]. intros E. apply andb_prop in E as [E F].
    specialize (I _ _ _ G).
    destruct (Rle_dec (ref k) (real p)) as [L|L].
    + apply (IHb (with_range g k l (smaller h p))); auto. apply with_range_ok; auto. rewrite real_smaller.
      split; [lra | apply Rmin_glb; lra].
    + apply (IHa (with_range g k (larger l p) h)); auto. apply with_range_ok; auto. rewrite real_larger.
      split; [apply Rmax_lub; lra | lra].
  - destruct (contested k (entries g)) as [[j js]|] eqn:C; [|discriminate]. intros E. apply andb_prop in E as [E F].
    apply (contested_ok _ _ _ _ Es) in C. destruct (largest_fold (map ref js) (ref j)) as [L1 [L2 L3]].
    rewrite <- C in *.
    assert (A : forall i, In i (j :: js) -> ref i <= ref k) by (intros i [<-|H]; auto; apply L2; now apply in_map).
    destruct (Req_EM_T (ref k) (ref t)) as [Y|Y].
    + apply (IHy (with_winners g k (j :: js) t [])); auto. now apply with_winners_ok.
    + assert (exists u, In u (others t (j :: js)) /\ ref u = ref k) as [u [Hu Eu]].
      { assert (exists u, In u (j :: js) /\ ref u = ref k) as [u [Hu Eu]].
        { destruct L3 as [L3|L3]; [exists j; split; [now left | auto]|]. apply in_map_iff in
            L3 as [u [Eu Hu]]. exists u. split; [now right | auto]. }
        exists u. split; auto. apply filter_In. split; auto. destruct (key_dec u t) as [->|]; auto. }
      assert (B : forall i, In i (others t (j :: js)) -> ref i <= ref k) by
        (intros i H; apply A; now apply filter_In in H).
      destruct (others t (j :: js)) as [|r rs]; [destruct Hu|]. apply (IHn (with_winners g k (j :: js) r rs)); auto.
      apply with_winners_ok; auto. apply largest_is.
      * intros x H. change (ref r :: map ref rs) with (map ref (r :: rs)) in H. apply in_map_iff in H as [i [<- H]].
        auto.
      * rewrite <- Eu. change (ref r :: map ref rs) with (map ref (r :: rs)). now apply in_map.
  - destruct (forward _ _ _ _ _ _ _ _) as [g1|] eqn:F; [|discriminate]. intros E. apply (IH g1); auto.
    apply (forward_ok net _ _ unit stored fetched ref) in F as [F _]; auto.
  - intros E. apply orb_prop in E as [E|E]; eauto.
Qed.
End Reference.
End Meaning.

(* For every execution of the class that CheckExecution describes: with net as it is multiplied out, any formula per
   sum, any copies. *)
Theorem check_sound net unit groups : check net unit groups = true ->
  forall stored fetched, execution net (real unit) stored fetched ->
  ~ overflows net (real unit) stored fetched (real float32_max) /\
  forall alts p rows y, In (alts, p) groups -> In rows alts ->
    (forall k, In k (read_by rows) -> possible net (real unit) stored fetched k (y k)) -> ~ outputs_in y rows.
Proof.
  unfold check. intros C stored fetched X. apply andb_prop in C as [O C]. apply andb_prop in O as [O _].
  destruct (references net unit stored fetched net Empty (fun _ => 0) O) as [ref [_ Ref]].
  pose proof (ordered_unique net unit stored fetched net Empty O) as U.
  set (made := rows_of net Empty) in *. pose proof
    (fun k s r => rows_of_ok net ref net Empty U (incl_refl _) ltac:(intros; discriminate) k s r) as Made.
    fold made in Made.
  destruct (forward _ _ _ _ _ _ _ _) as [g|] eqn:F; [|discriminate].
  apply (forward_ok net _ _ unit stored fetched ref) in F as [F S]; auto;
    [|intros k l h G; discriminate | intros k l h G; discriminate].
  assert (Top : forall part seen, incl part net ->
    (forall k ks, get k seen = Some ks -> forall j, In j ks -> ref j <= ref k) ->
    forall k ks, get k (maxima part seen) = Some ks -> forall j, In j ks -> ref j <= ref k).
  { induction part as [|[k x] part IH]; intros seen P H; simpl; auto. apply IH; [intros a Ha; apply P; now right|].
    intros j ks G. destruct (key_dec k j) as [<-|D]; [|rewrite get_put_other in G by auto; eauto].
    rewrite get_put_same in G. injection G as <-. apply (below_maximum net unit stored fetched ref Ref k x). apply P.
    now left. }
  split.
  - rewrite Forall_forall in S. intros [[k [s [v [m [K [Cm L]]]]]] | [k [j [f [v [K [V L]]]]]]].
    + specialize (S _ K v m Cm). simpl in S. lra.
    + specialize (S _ K v V). simpl in S. lra.
  - intros alts p rows y Hp Hr Y. rewrite forallb_forall in C. specialize (C _ Hp). eapply prove_ok; eauto.
    apply Top; [apply incl_refl | intros k ks G; discriminate].
Qed.
