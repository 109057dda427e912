(* The checker of certificates, and its theorem: if it answers true, no execution overflows, and none has outputs in any of
   the excluded sets. *)
From Coq Require Import Reals ZArith List Lra Bool.
From Specgrad Require Import CheckNumber CheckTrie CheckTrees CheckExecution CheckSums CheckBackward CheckForward.
Import ListNotations.
Open Scope R_scope.

(* --- the program --- *)
(* A set of outputs: all rows have coefs . y <= limit. *)
Record row := Row { coefs : list (key * number); limit : number }.
Definition alternative := list row.

(* A proof on a part of all executions. Cut: the reference of a cell is at most p, or at least p. Anew: bound all cells again
   on what is known here. Leaf: per alternative weights of its rows, slopes, and multipliers of what is known of cells. *)
Record reason := Reason { weights : list number; slopes : trie hint; pulls : list (key * number) }.
Inductive plan :=
  | Leaf (reasons : list reason)
  | Cut (k : key) (p : number) (below above : plan)
  | Anew (tight : trie bool) (lines : trie hint) (next : plan).

Definition sources (x : cell) : list key :=
  match x with
  | Input _ _ => []
  | Sum s => flat_map (fun p => match source p with None => [] | Some j => [j] end) (terms s)
  | Relu j => [j]
  | Max j js => j :: js
  end.
Definition is_some {A} (o : option A) : bool := match o with None => false | Some _ => true end.
Fixpoint ordered (net : network) (seen : trie bool) : bool :=
  match net with
  | [] => true
  | (k, x) :: net => negb (is_some (get k seen)) && forallb (fun j => is_some (get j seen)) (sources x) && ordered net (put k (Some true) seen)
  end.

Fixpoint add_row (w : number) (cs : list (key * number)) (f : form) : form :=
  match cs with [] => f | (k, c) :: cs => add_row w cs (add_at k (mul w c) f) end.
Fixpoint objective (ws : list number) (rows : alternative) (f : state) : option state :=
  match ws, rows with
  | [], [] => Some f
  | w :: ws, r :: rows => if negative w then None else objective ws rows (add_row w (coefs r) (fst f), sub (snd f) (mul w (limit r)))
  | _, _ => None
  end.
Fixpoint charge (f : form) (far : key -> option number) : option number :=          (* the sum of abs(a) * deviation *)
  match f with
  | Empty => Some zero
  | Fork h e o => match charge e (fun k => far (Even k)), charge o (fun k => far (Odd k)) with
    | Some x, Some y => match h with
      | None => Some (add x y)
      | Some a => match far Here with None => None | Some d => Some (add (mul (size a) (size d)) (add x y)) end
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
Definition excluded (g : known) (rows : alternative) (r : reason) : bool :=
  match objective (weights r) rows (Empty, zero) with
  | None => false
  | Some (f, c) => match charge f (fun k => get k (aparts g)) with
    | None => false
    | Some d => match pulled (facts g) (pulls r) (f, sub c d) with
      | None => false
      | Some (f, c) => match back (facts g) (slopes r) (entries g) f c with None => false | Some b => positive b end
      end
    end
  end.
Fixpoint all_excluded (g : known) (alts : list alternative) (rs : list reason) : bool :=
  match alts, rs with
  | [], [] => true
  | a :: alts, r :: rs => excluded g a r && all_excluded g alts rs
  | _, _ => false
  end.
Definition with_range (g : known) (k : key) (l h : number) : known :=
  Known (put k (Some (l, h)) (facts g)) (aparts g) (entries g) (void g || negb (at_most l h)).

Section Program.
Variables (net : network) (unit : number).
Fixpoint prove (alts : list alternative) (p : plan) (g : known) : bool :=
  if void g then true else
  match p with
  | Leaf rs => all_excluded g alts rs
  | Cut k p below above => match get k (facts g) with
    | None => false
    | Some (l, h) => prove alts below (with_range g k l (smaller h p)) && prove alts above (with_range g k (larger l p) h)
    end
  | Anew tight lines next => match forward unit tight lines (facts g) net with None => false | Some g => prove alts next g end
  end.
Definition check (groups : list (list alternative * plan)) : bool :=
  ordered net Empty &&
  match forward unit Empty Empty Empty net with
  | None => false
  | Some g => forallb (fun ap => prove (fst ap) (snd ap) g) groups
  end.
End Program.

(* --- what it means --- *)
Definition row_value (y : key -> R) (cs : list (key * number)) : R := CheckTrees.sum (fun kc => real (snd kc) * y (fst kc)) cs.
Definition read_by (rows : alternative) : list key := flat_map (fun r => map fst (coefs r)) rows.
Definition outputs_in (y : key -> R) (rows : alternative) : Prop := forall r, In r rows -> row_value y (coefs r) <= real (limit r).

Section Meaning.
Variables (net : network) (unit : number) (stored : key -> R) (fetched : key -> nat -> R).
Let holds := value net (real unit) stored fetched.

Lemma ordered_fresh part : forall seen k x, ordered part seen = true -> In (k, x) part -> get k seen = None.
Proof.
  induction part as [|[j z] part IH]; intros seen k x O; simpl in *; [tauto|]. apply andb_prop in O as [O1 O]. apply andb_prop in O1 as [N _].
  intros [E|H]; [injection E as <- <-; destruct (get j seen); [discriminate | auto]|].
  specialize (IH _ _ _ O H). destruct (key_dec j k) as [<-|D]; [rewrite get_put_same in IH; discriminate | now rewrite get_put_other in IH].
Qed.
Lemma ordered_unique part : forall seen, ordered part seen = true -> forall k x y, In (k, x) part -> In (k, y) part -> x = y.
Proof.
  induction part as [|[j z] part IH]; intros seen O k x y; simpl in *; [tauto|]. apply andb_prop in O as [_ O].
  intros [E|H] [F|G]; try congruence; [injection E as <- <- | injection F as <- <- | eapply IH; eauto];
    eapply ordered_fresh in O; eauto; rewrite get_put_same in O; discriminate.
Qed.

(* References exist: each cell's from those before it. *)
Definition update (f : key -> R) (k : key) (v : R) (j : key) : R := if key_dec k j then v else f j.
Lemma line_agrees f g read : forall ps n, (forall j, In j (sources (Sum (Sums ps zero 0 zero false))) -> f j = g j) -> mixed f read n ps = mixed g read n ps.
Proof.
  induction ps as [|p ps IH]; intros n H; simpl; auto. simpl in H. rewrite (IH (S n)) by (intros; apply H, in_or_app; auto).
  destruct (source p); auto. destruct (shared p); auto. rewrite H; auto. now left.
Qed.
Lemma reference_agrees f g k x : (forall j, In j (sources x) -> f j = g j) -> reference_of stored fetched f k x = reference_of stored fetched g k x.
Proof.
  destruct x as [l h|s|j|j js]; simpl; intros H; auto.
  - destruct (once s); auto. now apply line_agrees.
  - now rewrite H by auto.
  - rewrite H by auto. f_equal. apply map_ext_in. auto.
Qed.
Lemma references part : forall seen f, ordered part seen = true ->
  exists g, (forall j, get j seen <> None -> g j = f j) /\ forall k x, In (k, x) part -> g k = reference_of stored fetched g k x.
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
  apply reference_agrees. intros j H. symmetry. apply Same. specialize (S j H). destruct (get j seen); [discriminate | discriminate].
Qed.

Section Reference.
Variable ref : key -> R.
Hypothesis unique : forall k x y, In (k, x) net -> In (k, y) net -> x = y.
Hypothesis executed : execution net (real unit) stored fetched.
Hypothesis reference : forall k x, In (k, x) net -> ref k = reference_of stored fetched ref k x.
Let fine := ok net unit stored fetched ref.

Lemma total_row (y : key -> R) w cs : forall f, total (add_row w cs f) y = total f y + real w * row_value y cs.
Proof.
  induction cs as [|[k c] cs IH]; intros f; simpl; [unfold row_value; simpl; ring|].
  rewrite IH, total_add, real_mul. unfold row_value; simpl. ring.
Qed.
Lemma objective_ok y ws : forall rows f f', objective ws rows f = Some f' -> outputs_in y rows -> meaning y f' <= meaning y f.
Proof.
  induction ws as [|w ws IH]; intros [|r rows] f f' E H; simpl in E; try discriminate; [injection E as <-; lra|].
  destruct (negative w) eqn:W; [discriminate | apply not_negative in W].
  apply IH in E; [|intros q Hq; apply H; now right]. eapply Rle_trans; [exact E|]. unfold meaning; simpl. rewrite total_row, real_sub, real_mul.
  pose proof (Rmult_le_compat_l _ _ _ W (H r (or_introl eq_refl))). lra.
Qed.
Lemma charge_ok f : forall far (y r : key -> R) d, charge f far = Some d ->
  (forall k a, far k = Some a -> Rabs (y k - r k) <= Rabs (real a)) -> total f r - real d <= total f y.
Proof.
  induction f as [|h e He o Ho]; intros far y r d; simpl; [intros [= <-]; rewrite real_zero; lra|].
  destruct (charge e _) as [x|] eqn:X; [|discriminate]. destruct (charge o _) as [z|] eqn:Z; [|discriminate]. intros E N.
  specialize (He _ (fun k => y (Even k)) (fun k => r (Even k)) _ X (fun k => N (Even k))).
  specialize (Ho _ (fun k => y (Odd k)) (fun k => r (Odd k)) _ Z (fun k => N (Odd k))).
  destruct h as [a|]; [|injection E as <-; rewrite real_add; simpl; lra].
  destruct (far Here) as [b|] eqn:F; [|discriminate]. injection E as <-. rewrite !real_add, real_mul, !real_size. simpl coefficient.
  assert (real a * (r Here - y Here) <= Rabs (real a) * Rabs (real b)); [|lra].
  eapply Rle_trans; [apply Rle_abs|]. rewrite Rabs_mult. apply Rmult_le_compat_l; [apply Rabs_pos|]. rewrite Rabs_minus_sym. auto.
Qed.
Lemma pulled_ok g : (forall k l h, get k g = Some (l, h) -> real l <= ref k <= real h) ->
  forall ps f f', pulled g ps f = Some f' -> meaning ref f' <= meaning ref f.
Proof.
  intros I. induction ps as [|[k b] ps IH]; intros f f'; simpl; [intros [= <-]; lra|].
  destruct (get k g) as [[l h]|] eqn:G; [|discriminate]. intros E. apply IH in E. eapply Rle_trans; [exact E|].
  unfold meaning; simpl. rewrite total_add, real_add, real_neg. pose proof (ends b l h (ref k) (I _ _ _ G)). lra.
Qed.

Lemma excluded_ok g rows r y : fine g -> excluded g rows r = true -> (forall k, In k (read_by rows) -> holds k (y k)) -> ~ outputs_in y rows.
Proof.
  intros [I [N [E _]]] X Y H. unfold excluded in X.
  set (z := fun k => if in_dec key_dec k (read_by rows) then y k else ref k).
  assert (Same : forall r, In r rows -> row_value z (coefs r) = row_value y (coefs r)).
  { intros q Hq. assert (J : forall k c, In (k, c) (coefs q) -> In k (read_by rows)).
    { intros k c Hc. apply in_flat_map. exists q. split; auto. now apply (in_map fst) in Hc. }
    unfold row_value. induction (coefs q) as [|[k c] cs IHc]; simpl; auto. rewrite IHc by (intros; eapply J; right; eauto).
    unfold z. destruct (in_dec key_dec k (read_by rows)) as [_|C]; auto. elim C. apply (J k c). now left. }
  assert (Hz : outputs_in z rows) by (intros q Hq; rewrite Same; auto).
  destruct (objective (weights r) rows (Empty, zero)) as [[f c]|] eqn:O; [|discriminate]. apply (objective_ok z) in O; auto.
  destruct (charge f _) as [d|] eqn:C; [|discriminate]. apply (charge_ok f _ z ref) in C.
  2: { intros k a G. unfold z. destruct (in_dec key_dec k (read_by rows)) as [Hk|_]; [eapply Rle_trans; [apply (N k a _ G), Y, Hk | apply Rle_abs]|].
       rewrite Rminus_diag_eq, Rabs_R0 by auto. apply Rabs_pos. }
  destruct (pulled _ _ _) as [[f1 c1]|] eqn:P; [|discriminate]. apply (pulled_ok (facts g) I) in P.
  destruct (back _ _ _ f1 c1) as [b|] eqn:B; [|discriminate]. apply (back_ok _ _ ref I _ E) in B. apply positive_real in X.
  unfold meaning in *; simpl in *. rewrite real_sub, real_zero in *. lra.
Qed.
Lemma all_excluded_ok g y : fine g -> forall alts rs, all_excluded g alts rs = true ->
  forall rows, In rows alts -> (forall k, In k (read_by rows) -> holds k (y k)) -> ~ outputs_in y rows.
Proof.
  intros O. induction alts as [|a alts IH]; intros [|r rs] E rows H; simpl in *; try tauto; try discriminate.
  apply andb_prop in E as [E F]. destruct H as [<-|H]; [eapply excluded_ok; eauto | eapply IH; eauto].
Qed.
Lemma with_range_ok g k l h : fine g -> real l <= ref k <= real h -> fine (with_range g k l h).
Proof.
  intros [I [N [E V]]] R. split; [|split; [auto | split; auto]]; simpl.
  - intros j p q G. destruct (key_dec k j) as [<-|D]; [rewrite get_put_same in G; injection G as <- <-; auto | rewrite get_put_other in G by auto; eauto].
  - rewrite V. simpl. destruct (at_most l h) eqn:A; auto. apply not_at_most in A. lra.
Qed.
Lemma prove_ok y alts p : forall g, fine g -> prove net unit alts p g = true ->
  forall rows, In rows alts -> (forall k, In k (read_by rows) -> holds k (y k)) -> ~ outputs_in y rows.
Proof.
  induction p as [rs | k p below IHb above IHa | tight lines next IH]; intros g O; pose proof O as [I [_ [_ V]]]; simpl; rewrite V.
  - now apply all_excluded_ok.
  - destruct (get k (facts g)) as [[l h]|] eqn:G; [|discriminate]. intros E. apply andb_prop in E as [E F]. specialize (I _ _ _ G).
    destruct (Rle_dec (ref k) (real p)) as [L|L].
    + apply (IHb (with_range g k l (smaller h p))); auto. apply with_range_ok; auto. rewrite real_smaller. split; [lra | apply Rmin_glb; lra].
    + apply (IHa (with_range g k (larger l p) h)); auto. apply with_range_ok; auto. rewrite real_larger. split; [apply Rmax_lub; lra | lra].
  - destruct (forward _ _ _ _ _) as [g1|] eqn:F; [|discriminate]. intros E. apply (IH g1); auto.
    apply (forward_ok net unit stored fetched ref) in F as [F _]; auto.
Qed.
End Reference.
End Meaning.

(* For every execution of the class that CheckExecution describes: with net as it is multiplied out, any tree per sum, any copies. *)
Theorem check_sound net unit groups : check net unit groups = true ->
  forall stored fetched, execution net (real unit) stored fetched ->
  ~ overflows net (real unit) stored fetched (real float32_max) /\
  forall alts p rows y, In (alts, p) groups -> In rows alts ->
    (forall k, In k (read_by rows) -> value net (real unit) stored fetched k (y k)) -> ~ outputs_in y rows.
Proof.
  unfold check. intros C stored fetched X. apply andb_prop in C as [O C].
  destruct (references net unit stored fetched net Empty (fun _ => 0) O) as [ref [_ Ref]].
  pose proof (ordered_unique net unit stored fetched net Empty O) as U.
  destruct (forward _ _ _ _ _) as [g|] eqn:F; [|discriminate].
  apply (forward_ok net unit stored fetched ref) in F as [F S]; auto; [|intros k l h G; discriminate].
  split.
  - intros [k [s [v [m [K [Cm L]]]]]]. rewrite Forall_forall in S. specialize (S _ K v m Cm). simpl in S. lra.
  - intros alts p rows y Hp Hr Y. rewrite forallb_forall in C. specialize (C _ Hp). eapply prove_ok; eauto.
Qed.
