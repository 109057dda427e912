(* A lower bound of a linear function of references: from the last cell back to the inputs, each cell replaced by a
   line of what it reads. Any slopes that are given make valid lines; without, the checker has its own.

   The reference of a cell is the number that its values are near: of a sum what its references give, of a relu the
   relu of the one it reads. A form, a sum of coefficients times references, is bounded from below by taking the last
   cell out of it: a sum is replaced by its products, a relu with a positive coefficient by a line below it, with a
   negative one by a line above it. What is left at the end are inputs, and a constant, which is the bound
   (`back_ok`). A maximum is at least any weighing of its taps. *)
From Coq Require Import Reals ZArith List Lra Bool.
From Specgrad Require Import CheckNumber CheckTrie CheckTrees CheckBend CheckExecution CheckSums.
Import ListNotations.
Open Scope R_scope.

(* --- the program --- *)
Definition form := trie number.                                     (* coefficients by cell *)
Definition hint := (list number * list number)%type.                (* slopes below and above; of max one per source *)
Definition state := (form * number)%type.                           (* a linear function and a constant *)
(* a cell; how far its reference is from which sum *)
Definition entry := (key * cell * (number * state))%type.

Definition add_at (k : key) (v : number) (f : form) : form :=
  if Z.eqb (mantissa v) 0 then f else put k (Some match get k f with None => v | Some x => add x v end) f.
Fixpoint add_terms (a : number) (ps : list term) (f : state) : state :=
  match ps with
  | [] => f
  | p :: ps => let v := mul a (weight p) in
    add_terms a ps match source p with None => (fst f, add (snd f) v) | Some j => (add_at j v (fst f), snd f) end
  end.
(* a form times a, added to another: in one walk through both *)
Definition add_part (a : number) (x y : option number) : option number :=
  match x, y with None, _ => y | Some x, None => Some (mul a x) | Some x, Some y => Some (add y (mul a x)) end.
Fixpoint add_form (a : number) (t f : form) {struct t} : form :=
  match t, f with
  | Empty, _ => f
  | Fork h e o, Empty => Fork (add_part a h None) (add_form a e Empty) (add_form a o Empty)
  | Fork h e o, Fork h' e' o' => Fork (add_part a h h') (add_form a e e') (add_form a o o')
  end.
(* sums as forms and constants, which are made once for all that is asked about a network *)
Definition rows := trie state.
Fixpoint rows_of (net : network) (t : rows) : rows :=
  match net with
  | [] => t
  | (k, Sum s) :: net => rows_of net (put k (Some (add_terms one (terms s) (Empty, zero))) t)
  | _ :: net => rows_of net t
  end.
(* hi/(hi - lo), rounded up, though any slope will do *)
Definition steep (hi lo : number) : number :=
  let d := sub hi lo in let e := Z.min (exponent hi) (exponent d) in
  Number (- Z.div (- Z.shiftl (shifted hi e) 20) (shifted d e)) (-20).

Definition relu_line (a l h : number) (given : option hint) : option (number * number) :=    (* slope, constant *)
  if negb (negative l) then Some (one, zero) else if at_most h zero then Some (zero, zero)
  else if negative a then
    let s := match given with Some (_, s :: _) => s | _ => steep h l end in
    if negative s then None else Some (s, larger (neg (mul s l)) (sub h (mul s h)))
  else
    let s := match given with Some (s :: _, _) => s | _ => if at_most h (neg l) then zero else one end in
    if negb (negative s) && at_most s one then Some (s, zero) else None.

Record tap := Tap { at_key : key; lower : number; upper : number }.
Fixpoint taps (facts : ranges) (ks : list key) : option (list tap) :=
  match ks with
  | [] => Some []
  | k :: ks => match get k facts, taps facts ks with Some (l, h), Some ts => Some (Tap k l h :: ts) | _, _ => None end
  end.
Fixpoint slopes_times_lowers (ss : list number) (ts : list tap) : number :=         (* the sum of s * lower *)
  match ss, ts with s :: ss, t :: ts => add (mul s (lower t)) (slopes_times_lowers ss ts) | _, _ => zero end.
Fixpoint roof (ss : list number) (ts : list tap) : option number :=
  match ss, ts with
  | s :: ss, t :: ts => let r := sub one s in
      let b := add (larger (mul r (upper t)) (mul r (lower t))) (mul s (lower t)) in
      match roof ss ts with None => Some b | Some x => Some (larger b x) end
  | _, _ => None
  end.
Definition one_hot (k : key) (s : number) (ts : list tap) : list number :=
  map (fun t => if key_dec (at_key t) k then s else zero) ts.
Fixpoint best (f : tap -> number) (t : tap) (ts : list tap) : tap :=
  match ts with [] => t | u :: us => best f (if at_most (f u) (f t) then t else u) us end.
(* the tap with the largest upper end, with the slope that meets the others *)
Definition default_above (t : tap) (ts : list tap) : list number :=
  if Nat.eqb (length ts) 0 then [one] else
  let b := best upper t ts in
  let others := map (fun u => if key_dec (at_key u) (at_key b) then lower u else upper u) (t :: ts) in
  let rest := fold_left larger others (lower b) in
  if at_most (upper b) rest then one_hot (at_key b) zero (t :: ts)
    else one_hot (at_key b) (steep (sub (upper b) rest) (sub (lower b) rest)) (t :: ts).
Definition all_nonneg (ss : list number) : bool := forallb (fun s => negb (negative s)) ss.
Definition max_line (a : number) (t : tap) (ts : list tap) (given : option hint) : option (list number * number) :=
  if negative a then
    let ss := match given with Some (_, ss) => ss | None => default_above t ts end in
    match roof ss (t :: ts) with
    | Some b => if all_nonneg ss && Nat.eqb (length ss) (S (length ts))
      then Some (ss, sub b (slopes_times_lowers ss (t :: ts)))
      else None
    | None => None
    end
  else
    let ss := match given with Some (ss, _) => ss | None =>
      one_hot (at_key (best (fun u => add (lower u) (upper u)) t ts)) one (t :: ts) end in
    let s := fold_right add zero ss in
    if all_nonneg ss && Nat.eqb (length ss) (S (length ts)) && at_most s one && at_most one s then Some (ss, zero)
      else None.
Fixpoint add_taps (a : number) (ss : list number) (ts : list tap) (f : form) : form :=
  match ss, ts with s :: ss, t :: ts => add_taps a ss ts (add_at (at_key t) (mul a s) f) | _, _ => f end.

Section Back.
Variables (facts : ranges) (lines : trie hint).
(* at cell k, some cells together: CheckPieces.v, CheckLayers.v *)
Variable jump : key -> option (state -> option state).
Definition step_back (k : key) (x : cell) (e : number * state) (a : number) (f : form) (c : number) : option state :=
  match x with
  | Input _ _ => match get k facts with None => None
    | Some (l, h) => Some (f, add c (mul a (if negative a then h else l))) end
  | Sum _ => let (d, r) := e in Some (add_form a (fst r) f, add (sub c (mul (abs_of a) d)) (mul a (snd r)))
  | Relu j => match get j facts with
    | None => None
    | Some (l, h) => match relu_line a l h (get k lines) with
      | None => None
      | Some (s, b) => Some (add_at j (mul a s) f, add c (mul a b))
      end
    end
  | Max j js => match taps facts (j :: js) with
    | Some (t :: ts) => match max_line a t ts (get k lines) with
      | Some (ss, b) => Some (add_taps a ss (t :: ts) f, add c (mul a b))
      | None => None
      end
    | _ => None
    end
  | Bend j b => match get j facts with
    | None => None
    | Some (l, h) => let (s, d) := bent_line b a l h (get k lines) in Some (add_at j (mul a s) f, add c (mul a d))
    end
  end.
Fixpoint back (es : list entry) (f : form) (c : number) : option number :=
  match es with
  | [] => match f with Empty => Some c | Fork _ _ _ => None end
  | (k, x, e) :: es => match match jump k with None => Some (f, c) | Some j => j (f, c) end with
    | None => None
    | Some (f, c) => match get k f with
      | None => back es f c
      | Some a => match step_back k x e a (put k None f) c with Some (f, c) => back es f (down c) | None => None end
      end
    end
  end.
End Back.

(* --- what it means --- *)
Section Meaning.
Variables (facts : ranges) (lines : trie hint) (ref : key -> R).
Hypothesis in_range : forall k l h, get k facts = Some (l, h) -> real l <= ref k <= real h.

Definition meaning (f : state) : R := form_at (fst f) ref + real (snd f).
(* what is known of a cell's reference *)
Definition linked (k : key) (x : cell) (e : number * state) : Prop :=
  match x with
  | Input _ _ => True
  | Sum _ => Rabs (ref k - meaning (snd e)) <= real (fst e)
  | Relu j => ref k = Rmax 0 (ref j)
  | Max j js => ref k = maximum (ref j) (map ref js)
  | Bend j f => ref k = bent_at f (ref j)
  end.
Definition entry_ok (e : entry) : Prop := linked (fst (fst e)) (snd (fst e)) (snd e).

Lemma add_part_real a x y : coefficient (add_part a x y) = coefficient y + real a * coefficient x.
Proof. destruct x, y; simpl; autorewrite with real; ring. Qed.
Lemma total_add_form a t : forall f r, form_at (add_form a t f) r = form_at f r + real a * form_at t r.
Proof.
  induction t as [|h e He o Ho]; intros [|h' e' o'] r; cbn [add_form form_at]; try ring; rewrite add_part_real, He, Ho;
    simpl; ring.
Qed.
Lemma mantissa_zero v : mantissa v = 0%Z -> real v = 0.
Proof. intros H. unfold real. rewrite H. ring. Qed.
Lemma total_add k v f : form_at (add_at k v f) ref = form_at f ref + real v * ref k.
Proof.
  unfold add_at. destruct (Z.eqb_spec (mantissa v) 0) as [H|_]; [rewrite (mantissa_zero _ H); ring|].
  rewrite total_put. destruct (get k f); simpl; [rewrite real_add|]; ring.
Qed.
Lemma add_terms_meaning a ps : forall f, meaning (add_terms a ps f) = meaning f + real a * line ref ps.
Proof.
  induction ps as [|p ps IH]; intros f; simpl; [ring|]. rewrite IH. unfold meaning.
  destruct (source p); simpl; [rewrite total_add | rewrite real_add]; rewrite real_mul; ring.
Qed.

Lemma relu_line_ok a l h given s b x : relu_line a l h given = Some (s, b) -> real l <= x <= real h ->
  real a * (real s * x + real b) <= real a * Rmax 0 x.
Proof.
  unfold relu_line. intros E H. destruct (negative l) eqn:L; simpl in E;
    [apply negative_real in L | apply not_negative in L].
  2: { injection E as <- <-. rewrite real_one, real_zero, Rmax_right by lra. lra. }
  destruct (at_most h zero) eqn:U; [apply at_most_real in U | apply not_at_most in U]; rewrite real_zero in U.
  { injection E as <- <-. rewrite real_zero, Rmax_left by lra. lra. }
  destruct (negative a) eqn:A; [apply negative_real in A | apply not_negative in A].
  - set (z := match given with Some (_, s :: _) => s | _ => steep h l end) in *.
    destruct (negative z) eqn:Z; [discriminate | apply not_negative in Z]. injection E as <- <-. autorewrite with real.
    set (B := Rmax _ _). assert (- (real z * real l) <= B) by apply Rmax_l.
    assert (real h - real z * real h <= B) by apply Rmax_r.
    assert (Rmax 0 x <= real z * x + B); [|nra].
    apply Rmax_lub; [nra|]. destruct (Rle_dec (real z) 1); nra.
  - match type of E with (if negb (negative ?z) && _ then _ else _) = _ => set (y := z) in * end.
    destruct (negative y) eqn:Z; [discriminate | apply not_negative in Z]. destruct (at_most y one) eqn:O;
      [|discriminate].
    apply at_most_real in O. rewrite real_one in O. injection E as <- <-. rewrite real_zero, Rplus_0_r.
    apply Rmult_le_compat_l; auto. pose proof (Rmax_l 0 x). pose proof (Rmax_r 0 x). destruct (Rle_dec 0 x); nra.
Qed.

(* maxima *)
Lemma largest_fold vs : forall v, v <= maximum v vs /\ (forall w, In w vs -> w <= maximum v vs) /\
  (maximum v vs = v \/ In (maximum v vs) vs).
Proof.
  induction vs as [|w vs IH]; intros v; simpl; [split; [lra | split; [tauto | auto]]|].
  destruct (IH (Rmax v w)) as [A [B C]]. unfold maximum in *. pose proof (Rmax_l v w). pose proof (Rmax_r v w).
  split; [lra|]. split.
  - intros u [<-|Hw]; [lra | auto].
  - destruct C as [C|C]; [|auto]. rewrite C. unfold Rmax. destruct Rle_dec; auto.
Qed.
Lemma taps_ok ks : forall ts, taps facts ks = Some ts -> map at_key ts = ks /\ forall t, In t ts ->
  real (lower t) <= ref (at_key t) <= real (upper t).
Proof.
  induction ks as [|k ks IH]; intros ts; simpl; [intros [= <-]; simpl; tauto|].
  destruct (get k facts) as [[l h]|] eqn:G; [|discriminate]. destruct (taps facts ks) as [us|]; [|discriminate].
  intros [= <-].
  destruct (IH us eq_refl) as [<- B]. split; auto. intros t [<-|H]; [now apply in_range | auto].
Qed.
Fixpoint weighed (ss : list number) (ts : list tap) : R :=
  match ss, ts with s :: ss, t :: ts => real s * ref (at_key t) + weighed ss ts | _, _ => 0 end.
Lemma add_taps_meaning a ss : forall ts f, form_at (add_taps a ss ts f) ref = form_at f ref + real a * weighed ss ts.
Proof. induction ss; intros [|t ts] f; simpl; try ring. rewrite IHss, total_add, real_mul. ring. Qed.

Lemma nonneg_head s ss : all_nonneg (s :: ss) = true -> 0 <= real s /\ all_nonneg ss = true.
Proof. simpl. intros H. apply andb_prop in H as [A B]. split; auto. apply not_negative. now destruct (negative s). Qed.
Lemma above_lowest ss : forall ts, all_nonneg ss = true ->
  (forall t, In t ts -> real (lower t) <= ref (at_key t) <= real (upper t)) ->
  real (slopes_times_lowers ss ts) <= weighed ss ts.
Proof.
  induction ss as [|s ss IH]; intros [|t ts] N B; simpl; rewrite ?real_zero; try lra.
  apply nonneg_head in N as [P N]. rewrite real_add, real_mul. specialize (IH ts N ltac:(intros; apply B; now right)).
  specialize (B t (or_introl eq_refl)). pose proof (Rmult_le_compat_l _ _ _ P (proj1 B)). lra.
Qed.
Lemma roof_ok ss : forall ts b, length ss = length ts -> all_nonneg ss = true -> roof ss ts = Some b ->
  (forall t, In t ts -> real (lower t) <= ref (at_key t) <= real (upper t)) ->
  forall t, In t ts -> ref (at_key t) <= weighed ss ts + (real b - real (slopes_times_lowers ss ts)).
Proof.
  induction ss as [|s ss IH]; intros [|u ts] b L N E B t H; simpl in *; try tauto; try discriminate.
  apply (nonneg_head s ss) in N as [P N]. rewrite real_add, real_mul.
  assert (B' : forall t, In t ts -> real (lower t) <= ref (at_key t) <= real (upper t)) by (intros; apply B; now right).
  pose proof (above_lowest ss ts N B') as Low. pose proof (B u (or_introl eq_refl)) as Bu.
  pose proof (Rmult_le_compat_l _ _ _ P (proj1 Bu)) as Lu.
  set (own := add _ _) in E. assert (O : ref (at_key u) - real s * ref (at_key u) <= real own -
    real s * real (lower u)).
  { unfold own. autorewrite with real. pose proof (Rmax_l ((1 - real s) * real (upper u))
      ((1 - real s) * real (lower u))).
    pose proof (Rmax_r ((1 - real s) * real (upper u)) ((1 - real s) * real (lower u))). destruct (Rle_dec (real s) 1);
      nra. }
  destruct (roof ss ts) as [x|] eqn:X; injection E as <-.
  - rewrite real_larger. pose proof (Rmax_l (real own) (real x)). pose proof (Rmax_r (real own) (real x)).
    destruct H as [<-|H]; [lra|]. specialize (IH ts x (f_equal pred L) N X B' t H). lra.
  - destruct H as [<-|H]; [lra|]. destruct ss, ts; simpl in *; try tauto; try discriminate. destruct (roof ss ts);
      discriminate.
Qed.
Lemma below_largest m ss : forall ts, length ss = length ts -> all_nonneg ss = true ->
  (forall t, In t ts -> ref (at_key t) <= m) ->
  weighed ss ts <= real (fold_right add zero ss) * m.
Proof.
  induction ss as [|s ss IH]; intros [|t ts] L N B; simpl in *; try discriminate; [rewrite real_zero; lra|].
  apply (nonneg_head s ss) in N as [P N]. rewrite real_add.
  specialize (IH ts (f_equal pred L) N ltac:(intros; apply B; now right)).
  pose proof (Rmult_le_compat_l _ _ _ P (B t (or_introl eq_refl))). lra.
Qed.
Lemma max_line_ok a t ts given ss b : max_line a t ts given = Some (ss, b) ->
  (forall u, In u (t :: ts) -> real (lower u) <= ref (at_key u) <= real (upper u)) ->
  real a * (weighed ss (t :: ts) + real b) <= real a * maximum (ref (at_key t)) (map ref (map at_key ts)).
Proof.
  unfold max_line. intros E B. set (m := maximum _ _).
  destruct (largest_fold (map ref (map at_key ts)) (ref (at_key t))) as [A [C D]].
  destruct (negative a) eqn:G; [apply negative_real in G | apply not_negative in G].
  - set (zs := match given with Some (_, ss) => ss | None => default_above t ts end) in *.
    destruct (roof zs (t :: ts)) as [r|] eqn:X; [|discriminate]. destruct (all_nonneg zs) eqn:N; [|discriminate].
    destruct (Nat.eqb_spec (length zs) (S (length ts))) as [L|]; [|discriminate]. injection E as <- <-.
    rewrite real_sub.
    assert (exists u, In u (t :: ts) /\ m = ref (at_key u)) as [u [Hu ->]].
    { destruct D as [D|D]; [exists t; split; [now left | exact D]|]. rewrite map_map in D. apply in_map_iff in
        D as [u [Eu Hu]].
      exists u. split; [now right|]. unfold m. now rewrite map_map, Eu. }
    pose proof (roof_ok zs (t :: ts) r L N X B u Hu). nra.
  - match type of E with context [all_nonneg ?z] => set (zs := z) in * end.
    destruct (all_nonneg zs) eqn:N; [|discriminate]. destruct (Nat.eqb_spec (length zs) (S (length ts))) as [L|];
      [|discriminate].
    destruct (at_most _ one) eqn:X; [|discriminate]. destruct (at_most one _) eqn:Y; [|discriminate].
    injection E as <- <-.
    apply at_most_real in X. apply at_most_real in Y. rewrite real_one in *. rewrite real_zero.
    pose proof (below_largest m zs (t :: ts) L N) as W. assert (T : forall u, In u (t :: ts) -> ref (at_key u) <= m).
    { intros u [<-|H]; [exact A|]. apply C. apply in_map. now apply in_map. }
    specialize (W T). apply Rmult_le_compat_l; auto. replace (real (fold_right add zero zs)) with 1 in W by lra. lra.
Qed.

Lemma step_ok k x e a f c f' c' : linked k x e -> step_back facts lines k x e a f c = Some (f', c') ->
  meaning (f', c') <= form_at f ref + real a * ref k + real c.
Proof.
  intros K. unfold step_back. destruct x as [l h | s | j | j js | j g].
  - destruct (get k facts) as [[p q]|] eqn:G; [|discriminate]. intros [= <- <-]. unfold meaning; simpl.
    rewrite real_add.
    pose proof (ends a p q (ref k) (in_range _ _ _ G)). lra.
  - destruct e as [d [t b]]. unfold meaning in K; simpl in K. intros [= <- <-]. unfold meaning; simpl.
    rewrite total_add_form. autorewrite with real.
    assert (real a * (form_at t ref + real b - ref k) <= Rabs (real a) * real d); [|lra].
    eapply Rle_trans; [apply Rle_abs|]. rewrite Rabs_mult. apply Rmult_le_compat_l; [apply Rabs_pos|].
    rewrite Rabs_minus_sym. exact K.
  - destruct (get j facts) as [[p q]|] eqn:G; [|discriminate]. destruct (relu_line a p q _) as [[s b]|] eqn:E;
      [|discriminate].
    intros [= <- <-]. unfold meaning; simpl. rewrite total_add, real_add, !real_mul. simpl in K. rewrite K.
    pose proof (relu_line_ok _ _ _ _ _ _ (ref j) E (in_range _ _ _ G)). lra.
  - destruct (taps facts (j :: js)) as [[|t ts]|] eqn:T; try discriminate. destruct (taps_ok _ _ T) as [M B].
    destruct (max_line a t ts _) as [[ss b]|] eqn:E; [|discriminate]. intros [= <- <-]. unfold meaning; cbn [fst snd].
    rewrite add_taps_meaning, real_add, real_mul. simpl in K. injection M as M1 M2.
    pose proof (max_line_ok _ _ _ _ _ _ E B) as L. rewrite M1, M2, <- K in L. lra.
  - destruct (get j facts) as [[p q]|] eqn:G; [|discriminate]. destruct (bent_line g a p q _) as [s b] eqn:E.
    intros [= <- <-]. unfold meaning; simpl. rewrite total_add, real_add, !real_mul. simpl in K. rewrite K.
    pose proof (bent_line_ok _ _ _ _ _ _ _ (ref j) E (in_range _ _ _ G)). lra.
Qed.

Theorem back_ok jump es : Forall entry_ok es -> (forall k j s s', jump k = Some j -> j s = Some s' ->
  meaning s' <= meaning s) ->
  forall f c b, back facts lines jump es f c = Some b -> real b <= form_at f ref + real c.
Proof.
  intros E J. induction E as [|[[k x] e] es K _ IH]; intros f0 c0 b; simpl.
  - destruct f0; [intros [= <-]; simpl; lra | discriminate].
  - assert (M : forall f c, match jump k with None => Some (f0, c0) | Some j => j (f0, c0) end = Some (f, c) ->
      meaning (f, c) <= meaning (f0, c0)).
    { intros f c. destruct (jump k) as [j|] eqn:A; [now apply (J k) | intros [= <- <-]; lra]. }
    destruct (match jump k with None => _ | Some j => _ end) as [[f c]|]; [|discriminate]. specialize (M _ _ eq_refl).
    unfold meaning in M; simpl in M. intros B. eapply Rle_trans; [|exact M]. revert B. destruct (get k f) as [a|] eqn:G;
      [|apply IH].
    destruct (step_back _ _ k x e a _ c) as [[f' c']|] eqn:S; [|discriminate].
    intros B. apply IH in B. apply (step_ok _ _ _ _ _ _ _ _ K) in S. unfold meaning in S; simpl in S.
    rewrite total_put, G in S. simpl in S. pose proof (down_le c'). lra.
Qed.
End Meaning.
