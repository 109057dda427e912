(* Ranges, errors and deviations of all cells in order, on what is known of an execution so far.

   For each cell: where its reference lies, by the arithmetic of ranges, and where it is asked for by the way back of
   CheckBackward.v; how far it is off as a sum; and how far any of its values is from its reference. On a part of a
   proof more is known, as that a cell is positive or which tap wins, and all cells are bounded anew on it. A range
   that is empty says that no execution is left, and then anything is true of that part. `forward_ok` says that all
   of it holds of every execution for which the things that were known hold. *)
From Coq Require Import Reals ZArith List Permutation Lra Bool.
From Flocq Require Import Core.
From Specgrad Require Import CheckNumber CheckTrie CheckTrees CheckBend CheckExecution CheckSums CheckBackward
  CheckLayers.
Import ListNotations.
Open Scope R_scope.

(* --- the program --- *)
(* void: a range is empty, so no execution is left. among: a maximum is that of these cells alone, the first and
   others *)
Definition remaining := trie (key * list key).
Record known := Known { facts : ranges; aparts : deviations; entries : list entry; void : bool; among : remaining;
  layers : trie layer }.

Definition tiny_number := power (-126).
Fixpoint furthest (far : deviations) (ks : list key) : option number :=
  match ks with
  | [] => Some zero
  | k :: ks => match get k far, furthest far ks with Some d, Some e => Some (larger d e) | _, _ => None end
  end.
(* a cell's range, its error as a sum, and how far its values are from its reference *)
Definition bounded (unit : number) (g : known) (x : cell) : option (number * number * number * number) :=
  match x with
  | Input l h => Some (l, h, zero, zero)
  | Sum s => if negative (spread s) || negative (blur s) then None
    else match measured (facts g) (aparts g) (blur s) (spread s) (terms s) with
    | None => None
    | Some t => match rounding_error unit s t with
      | None => None
      | Some r =>
          let e := up (if once s then add (add (off t) (drift t)) r else off t) in
          Some (down (sub (least t) e), up (add (most t) e), e, if once s then zero else up (add (drift t) r))
      end
    end
  | Relu j => match get j (facts g), get j (aparts g) with
    | Some (l, h), Some d => Some (larger zero l, larger zero h, zero, up (add d tiny_number))
    | _, _ => None
    end
  | Max j js => match taps (facts g) (j :: js), furthest (aparts g) (j :: js) with
    | Some (t :: ts), Some d => Some (lower (best lower t ts), upper (best upper t ts), zero, up (add d tiny_number))
    | _, _ => None
    end
  | Bend j f => match get j (facts g), get j (aparts g) with
    | Some (l, h), Some d =>
        let p := down (lowest f zero l h) in let q := up (highest f zero l h) in
        let off := add (mul (relative f) (add (larger (abs_of l) (abs_of h)) d)) (absolute f) in
        let far := up (add (mul (steepest f (sub l d) (add h d)) d) off) in
        if in_order (turns f) && negb (negative (relative f)) &&
          at_most (add (larger (abs_of p) (abs_of q)) far) float32_max
        then Some (p, q, zero, far) else None
    | _, _ => None
    end
  end.
Definition unit_form (k : key) (a : number) : form := put k (Some a) Empty.
Definition narrow (layers : trie layer) (g : ranges) (lines : trie hint) (es : list entry) (k : key) (l h : number) :
  option (number * number) :=
  match back g lines (layered layers g) es (unit_form k one) zero,
    back g lines (layered layers g) es (unit_form k (neg one)) zero with
  | Some a, Some b => Some (larger l (down a), smaller h (neg (down b)))
  | _, _ => None
  end.
(* Where a maximum of some cells lies; then no cell that it reads is above it, and the only one left is not below. *)
Definition met (f : ranges) (r : key) (rs : list key) (l h : number) : number * number :=
  match taps f (r :: rs) with
  | Some (t :: ts) => (larger l (lower (best lower t ts)), smaller h (upper (best upper t ts)))
  | _ => (l, h)
  end.
Fixpoint lowered (h : number) (ks : list key) (f : ranges) : ranges :=
  match ks with
  | [] => f
  | k :: ks => lowered h ks match get k f with None => f | Some (p, q) => put k (Some (p, smaller q h)) f end
  end.
Definition won (f : ranges) (l h : number) (ks : list key) (r : key) (rs : list key) : ranges :=
  let f := lowered h ks f in
  match rs, get r f with [], Some (p, q) => put r (Some (larger p l, q)) f | _, _ => f end.
Definition contenders (x : cell) : list key := match x with Max j js => j :: js | _ => [] end.
(* which sum a cell is *)
Definition sum_at (made : rows) (facts : ranges) (k : key) (x : cell) : option state :=
  match x with
  | Sum _ => match get k made with None => None | Some (t, c) => Some (pruned t facts c) end
  | _ => Some (Empty, zero)
  end.
Definition visit (made : rows) (runs : trie nat) (unit : number) (tight : trie bool) (lines : trie hint) (g : known)
  (kx : key * cell) : option known :=
  let (k, x) := kx in
  match bounded unit g x, sum_at made (facts g) k x with
  | Some (l, h, e, d), Some r =>
      let (l, h) := match get k (facts g) with None => (l, h) | Some (p, q) => (larger l p, smaller h q) end in
      let (l, h) := match get k (among g) with None => (l, h) | Some (r, rs) => met (facts g) r rs l h end in
      let es := (k, match get k (among g) with None => x | Some (r, rs) => Max r rs end, (e, r)) :: entries g in
      let ends := match get k tight with
        | Some always => if always || (negative l && positive h) then narrow (layers g) (facts g) lines es k l h
          else Some (l, h)
        | None => Some (l, h)
        end in
      match ends with
      | None => None
      | Some (l, h) =>
          let f := match get k (among g) with None => facts g | Some (r, rs) => won (facts g) l h (contenders x) r rs
            end in
          Some (Known (put k (Some (l, h)) f) (put k (Some d) (aparts g)) es (void g || negb (at_most l h)) (among g)
            (with_layer runs k es (layers g)))
      end
  | _, _ => None
  end.
Fixpoint visits (made : rows) (runs : trie nat) (unit : number) (tight : trie bool) (lines : trie hint) (g : known)
  (net : network) : option known :=
  match net with
  | [] => Some g
  | kx :: net => match visit made runs unit tight lines g kx with None => None
    | Some g => visits made runs unit tight lines g net end
  end.
Definition forward made runs unit tight lines (given : ranges) (among : remaining) (net : network) : option known :=
  visits made runs unit tight lines (Known given Empty [] false among Empty) net.

(* --- what it means --- *)
Section Meaning.
Variables (net : network) (made : rows) (runs : trie nat) (unit : number) (stored : key -> R)
  (fetched : key -> nat -> R) (ref : key -> R).
Let holds := possible net (real unit) stored fetched.
Hypothesis unique : forall k x y, In (k, x) net -> In (k, y) net -> x = y.
Hypothesis rows_made : forall k s r, In (k, Sum s) net -> get k made = Some r -> meaning ref r = line ref (terms s).
Hypothesis executed : execution net (real unit) stored fetched.

Definition reference_of (k : key) (x : cell) : R :=
  match x with
  | Input _ _ => stored k
  | Sum s => if once s then stored k else mixed ref (fetched k) 0 (terms s)
  | Relu j => Rmax 0 (ref j)
  | Max j js => maximum (ref j) (map ref js)
  | Bend j f => bent_at f (ref j)
  end.
Hypothesis reference : forall k x, In (k, x) net -> ref k = reference_of k x.

Definition in_range (f : ranges) := forall k l h, get k f = Some (l, h) -> real l <= ref k <= real h.
Definition deviates (f : deviations) := forall k d v, get k f = Some d -> holds k v -> Rabs (v - ref k) <= real d.
Definition maximal (w : remaining) := forall k r rs, get k w = Some (r, rs) -> ref k = maximum (ref r) (map ref rs).
Definition ok (g : known) := in_range (facts g) /\ deviates (aparts g) /\ Forall (entry_ok ref) (entries g) /\
  void g = false /\ maximal (among g) /\ all_layers_ok ref (layers g).
Definition safe (kx : key * cell) :=
  match snd kx with
  | Sum s => forall v m, computes net (real unit) stored fetched (fst kx) s v m -> m <= real float32_max
  | Bend _ _ => forall v, holds (fst kx) v -> Rabs v <= real float32_max
  | _ => True
  end.

Lemma vars_reads t m k v : In m (addends t) -> In (k, v) (vars m) -> In (k, v) (cells_read t).
Proof.
  revert m. induction t; simpl; intros m H V; auto.
  - destruct H as [<-|[]]. destruct V.
  - destruct H as [<-|[]]. exact V.
  - apply in_or_app. apply in_app_or in H as [H|H]; eauto.
  - apply in_flat_map in H as [a [Ha H]]. apply in_map_iff in H as [b [<- Hb]]. simpl in V. apply in_or_app.
    apply in_app_or in V as [V|V]; eauto.
  - eauto.
Qed.

Lemma computes_ok g k s t r : in_range (facts g) -> deviates (aparts g) -> 0 <= real (spread s) -> 0 <= real (blur s) ->
  measured (facts g) (aparts g) (blur s) (spread s) (terms s) = Some t -> rounding_error unit s t = Some r ->
  forall v m, computes net (real unit) stored fetched k s v m ->
  Rabs (v - mixed ref (fetched k) 0 (terms s)) <= real (drift t) + real r /\ m <= real float32_max.
Proof.
  intros I N W Bl E R v m [a [[U [G [L [ms [P M]]]]] [H V]]].
  destruct (measured_trees (facts g) (aparts g) ref holds I N s (fetched k) 0 (terms s) ms t E W Bl M) as [X [Y Z]].
  { intros b j w Hb Hw. apply H. apply vars_reads with b; auto. eapply Permutation_in; [apply Permutation_sym|];
      eauto. }
  destruct (any_formula a v m U V) as [A B]. destruct (bounds a) as [C [D _]].
  unfold exact_value, magnitude, width in *.
  rewrite !(sum_over_permutation value_of _ _ P) in *. rewrite !(sum_over_permutation size_of _ _ P) in *.
  rewrite !(sum_over_permutation width_of _ _ P) in *.
  pose proof (unit_product_1 a U) as g1. pose proof (loss_product_1 a) as l1.
  unfold rounding_error in R. destruct (grown (roundings s) unit) as [gr|] eqn:Gr; [|discriminate].
  destruct (grown (4 * roundings s + 4) (power (-126))) as [lo|] eqn:Lo; [|discriminate].
  destruct (at_most _ _) eqn:F; [|discriminate]. injection R as <-. apply at_most_real in F.
  apply grown_real in Gr as [Gu [G0 G1]]. apply grown_real in Lo as [_ [L0 L1]]. rewrite real_power in L1.
  fold least_normal in L1.
  unfold losses_allowed in L.
  autorewrite with real in *. set (GR := unit_product a) in *. set (LS := loss_product a) in *.
  set (S1 := sum_over size_of ms) in *. set (W1 := sum_over width_of ms) in *.
  assert (HG : GR <= 1 + real gr) by lra. assert (HL : LS <= 1 + real lo) by lra.
  assert (Q1 : (GR - 1) * S1 <= real gr * real (total_size t)) by (apply Rmult_le_compat; lra).
  assert (Q2 : (LS - 1) * GR * W1 <= real lo * (1 + real gr) * real (total_width t)).
  { apply Rmult_le_compat; try lra; [apply Rmult_le_pos; lra|]. apply Rmult_le_compat; lra. }
  split.
  - replace (v - mixed ref (fetched k) 0 (terms s))
      with ((v - sum_over value_of ms) + (sum_over value_of ms - mixed ref (fetched k) 0 (terms s))) by
      ring.
    eapply Rle_trans; [apply Rabs_triang|]. unfold error_of in A. lra.
  - eapply Rle_trans; [exact B|]. apply Rle_trans with ((1 + real lo) * ((1 + real gr) * real (total_width t))); [|lra].
    rewrite Rmult_assoc. apply Rmult_le_compat; try lra; [apply Rmult_le_pos; lra|]. apply Rmult_le_compat; lra.
Qed.

Lemma relu_near x y : Rabs (Rmax 0 x - Rmax 0 y) <= Rabs (x - y).
Proof. unfold Rmax, Rabs. repeat destruct Rle_dec; repeat destruct Rcase_abs; lra. Qed.
Lemma max_near x y a b d : Rabs (x - y) <= d -> Rabs (a - b) <= d -> Rabs (Rmax x a - Rmax y b) <= d.
Proof. unfold Rmax, Rabs. repeat destruct Rle_dec; repeat destruct Rcase_abs; lra. Qed.
Lemma largest_near d vs : forall xs v x, Rabs (v - x) <= d -> Forall2 (fun v x => Rabs (v - x) <= d) vs xs ->
  Rabs (maximum v vs - maximum x xs) <= d.
Proof.
  induction vs as [|w vs IH]; intros xs v x H F; inversion_clear F; simpl; auto. apply IH; auto. now apply max_near.
Qed.
Lemma furthest_ok f ks : deviates f -> forall d, furthest f ks = Some d -> forall k v, In k ks -> holds k v ->
  Rabs (v - ref k) <= real d.
Proof.
  intros N. induction ks as [|j ks IH]; simpl; intros d; [tauto|]. destruct (get j f) as [a|] eqn:G; [|discriminate].
  destruct (furthest f ks) as [b|]; [|discriminate]. intros [= <-] k v [<-|H] V; rewrite real_larger.
  - eapply Rle_trans; [eapply N; eauto | apply Rmax_l].
  - eapply Rle_trans; [eapply IH; eauto | apply Rmax_r].
Qed.
Lemma best_ok f ts : forall t, In (best f t ts) (t :: ts) /\ forall u, In u (t :: ts) ->
  real (f u) <= real (f (best f t ts)).
Proof.
  induction ts as [|w ts IH]; intros t; simpl; [split; auto; intros u [<-|[]]; lra|].
  set (b := if at_most (f w) (f t) then t else w). destruct (IH b) as [A B].
  assert (real (f t) <= real (f b) /\ real (f w) <= real (f b)) as [T W].
  { unfold b. destruct (at_most (f w) (f t)) eqn:E; [apply at_most_real in E | apply not_at_most in E]; lra. }
  split.
  - destruct A as [A|A]; [|auto]. rewrite <- A. unfold b. destruct at_most; auto.
  - specialize (B b (or_introl eq_refl)) as Bb. intros u [<-|[<-|H]]; try lra. apply B. now right.
Qed.

Lemma best_ends f k j js t ts : in_range f -> ref k = maximum (ref j) (map ref js) ->
  taps f (j :: js) = Some (t :: ts) ->
  real (lower (best lower t ts)) <= ref k <= real (upper (best upper t ts)).
Proof.
  intros I Rk T. destruct (largest_fold (map ref js) (ref j)) as [L1 [L2 L3]].
  destruct (taps_ok f ref I _ _ T) as [M B]. injection M as M1 M2. rewrite <- Rk in *.
  destruct (best_ok lower ts t) as [A1 A2]. destruct (best_ok upper ts t) as [B1 B2]. split.
  - specialize (B _ A1) as Bl. apply Rle_trans with (ref (at_key (best lower t ts))); [lra|].
    destruct A1 as [A1|A1]; [rewrite <- A1, M1; auto|]. apply L2. rewrite <- M2, map_map.
    now apply (in_map (fun t => ref (at_key t))).
  - destruct L3 as [L3|L3].
    + rewrite L3, <- M1. eapply Rle_trans; [apply B; now left|]. apply B2. now left.
    + rewrite <- M2, map_map in L3. apply in_map_iff in L3 as [u [Eu Hu]]. rewrite <- Eu.
      eapply Rle_trans; [apply B; now right|]. apply B2. now right.
Qed.

Lemma sum_at_ok f k s r : In (k, Sum s) net -> in_range f -> sum_at made f k (Sum s) = Some r ->
  meaning ref r = line ref (terms s).
Proof.
  intros K I. simpl. destruct (get k made) as [[t c]|] eqn:G; [|discriminate]. intros [= <-].
  rewrite pruned_ok by exact I. eauto.
Qed.
Lemma bounded_ok g k x l h e d r0 : In (k, x) net -> ok g -> bounded unit g x = Some (l, h, e, d) ->
  sum_at made (facts g) k x = Some r0 ->
  real l <= ref k <= real h /\ entry_ok ref (k, x, (e, r0)) /\ (forall v, holds k v -> Rabs (v - ref k) <= real d) /\
    safe (k, x).
Proof.
  intros K [I [N _]] E At. destruct executed as [X1 [X2 X3]]. pose proof (reference k x K) as Rk. unfold bounded in E.
  destruct x as [a b | s | j | j js | j f]; simpl in Rk.
  - injection E as <- <- <- <-. split; [rewrite Rk; now apply X1|]. split; [exact Logic.I|]. split; [|exact Logic.I].
    intros v V. inversion V as [? ? ? J | ? ? J | ? ? ? ? ? J | ? ? ? ? J | ? ? ? ? ? ? J | ? ? ? ? ? J]; subst;
      pose proof (unique _ _ _ K J) as Q; try discriminate.
    rewrite Rk, Rminus_diag_eq, Rabs_R0, real_zero by auto. lra.
  - destruct (negative (spread s)) eqn:Sp; [discriminate | apply not_negative in Sp].
    destruct (negative (blur s)) eqn:Bl; [discriminate | apply not_negative in Bl]. cbn [orb] in E.
    destruct (measured _ _ _ _ _) as [t|] eqn:T; [|discriminate]. destruct (rounding_error unit s t) as [r|] eqn:R;
      [|discriminate].
    pose proof (computes_ok g k s t r I N Sp Bl T R) as C. apply (sum_at_ok _ k s r0 K I) in At.
    pose proof (measured_line _ _ ref I s _ _ T) as Li.
    pose proof (measured_mixed _ _ ref holds N s (fetched k) 0 _ _ T (fun i p j => X3 k s i p j K)) as Mi.
    assert (safe (k, Sum s)) by (intros v m Hv; now apply (C v m)).
    destruct (once s) eqn:O.
    + injection E as <- <- <- <-. destruct (X2 k s K O) as [m Cm]. destruct (C _ _ Cm) as [Cv _].
      set (e1 := up _) in *. pose proof (up_ge (add (add (off t) (drift t)) r)) as Ue. fold e1 in Ue.
      rewrite !real_add in Ue.
      assert (Ek : Rabs (ref k - line ref (terms s)) <= real e1).
      { rewrite Rk. replace (stored k - line ref (terms s))
          with ((stored k - mixed ref (fetched k) 0 (terms s)) +
          (mixed ref (fetched k) 0 (terms s) - line ref (terms s))) by ring.
        eapply Rle_trans; [apply Rabs_triang|]. lra. }
      split; [|split; [unfold entry_ok; simpl; rewrite At; exact Ek | split; auto]].
      * pose proof (down_le (sub (least t) e1)). pose proof (up_ge (add (most t) e1)). rewrite real_sub, real_add in *.
        apply Rabs_le_inv in Ek. lra.
      * intros v V. inversion V as [? ? ? J | ? ? J | ? ? ? ? ? J Of | ? ? ? ? J | ? ? ? ? ? ? J | ? ? ? ? ? J]; subst;
          pose proof (unique _ _ _ K J) as Q; try discriminate.
        -- rewrite Rk, Rminus_diag_eq, Rabs_R0, real_zero by auto. lra.
        -- injection Q as <-. congruence.
    + injection E as <- <- <- <-. set (e1 := up (off t)) in *. pose proof (up_ge (off t)) as Ue. fold e1 in Ue.
      assert (Ek : Rabs (ref k - line ref (terms s)) <= real e1) by (rewrite Rk; lra).
      split; [|split; [unfold entry_ok; simpl; rewrite At; exact Ek | split; auto]].
      * pose proof (down_le (sub (least t) e1)). pose proof (up_ge (add (most t) e1)). rewrite real_sub, real_add in *.
        apply Rabs_le_inv in Ek. lra.
      * intros v V. inversion V as [? ? ? J | ? ? J Ot | ? s' t' v' m J Of Tr Re Ev | ? ? ? ? J | ? ? ? ? ? ? J
          | ? ? ? ? ? J]; subst; pose proof (unique _ _ _ K J) as Q; try discriminate.
        -- injection Q as <-. congruence.
        -- injection Q as <-. rewrite Rk. pose proof (up_ge (add (drift t) r)) as Ud. rewrite real_add in Ud.
           destruct (C v m) as [Cv _]; [exists t'; auto|]. lra.
  - destruct (get j (facts g)) as [[p q]|] eqn:F; [|discriminate]. destruct (get j (aparts g)) as [a|] eqn:A;
      [|discriminate].
    injection E as <- <- <- <-. pose proof (I _ _ _ F) as B. rewrite !real_larger, real_zero. split.
    { rewrite Rk. split; apply Rle_max_compat_l; lra. }
    split; [exact Rk|]. split; [|exact Logic.I].
    intros v V. inversion V as [? ? ? J | ? ? J | ? ? ? ? ? J | ? j' w e' J Hw He | ? ? ? ? ? ? J | ? ? ? ? ? J]; subst;
      pose proof (unique _ _ _ K J) as Q; try discriminate.
    injection Q as <-. rewrite Rk. replace (Rmax 0 w + e' - Rmax 0 (ref j))
      with ((Rmax 0 w - Rmax 0 (ref j)) + e') by ring.
    eapply Rle_trans; [apply Rabs_triang|]. pose proof (relu_near w (ref j)). pose proof (N _ _ _ A Hw).
    pose proof (up_ge (add a tiny_number)) as Ua. unfold tiny_number in *. rewrite real_add, real_power in Ua.
    fold least_normal in Ua. lra.
  - destruct (taps (facts g) (j :: js)) as [[|t ts]|] eqn:T; try discriminate. destruct (furthest _ _) as [a|] eqn:A;
      [|discriminate].
    injection E as <- <- <- <-.
    assert (Near : forall v, holds k v -> Rabs (v - ref k) <= real (up (add a tiny_number))).
    { intros v V. inversion V as [? ? ? J | ? ? J | ? ? ? ? ? J | ? ? ? ? J | ? j' js' w ws e' J Hw Hws He
        | ? ? ? ? ? J]; subst; pose proof (unique _ _ _ K J) as Q; try discriminate.
      injection Q as <- <-. rewrite Rk. replace (maximum w ws + e' - maximum (ref j) (map ref js))
        with ((maximum w ws - maximum (ref j) (map ref js)) + e') by ring.
      eapply Rle_trans; [apply Rabs_triang|]. pose proof (furthest_ok _ _ N _ A) as Fu.
      assert (Rabs (maximum w ws - maximum (ref j) (map ref js)) <= real a).
      { apply largest_near; [apply Fu; [now left | auto]|].
        assert (Fu' : forall k v, In k js -> holds k v -> Rabs (v - ref k) <= real a) by
          (intros; apply Fu; [now right | auto]). clear - Hws Fu'.
        induction Hws; simpl; constructor; [apply Fu'; [now left | auto] | apply IHHws; intros; apply Fu';
          [now right | auto]]. }
      pose proof (up_ge (add a tiny_number)) as Ua. unfold tiny_number in *. rewrite real_add, real_power in Ua.
      fold least_normal in Ua. lra. }
    split; [|split; [exact Rk | split; [exact Near | exact Logic.I]]].
    eapply best_ends; eauto.
  - destruct (get j (facts g)) as [[p q]|] eqn:F; [|discriminate]. destruct (get j (aparts g)) as [a|] eqn:A;
      [|discriminate].
    set (low := down _) in E. set (high := up (highest _ _ _ _)) in E. set (far := up (add _ _)) in E.
    destruct (in_order (turns f)) eqn:O; [|discriminate]. destruct (negative (relative f)) eqn:Rl;
      [discriminate | apply not_negative in Rl].
    destruct (at_most _ _) eqn:M; [|discriminate]. apply at_most_real in M. simpl in E. injection E as <- <- <- <-.
    pose proof (I _ _ _ F) as B.
    assert (Rg : real low <= ref k <= real high).
    { rewrite Rk. pose proof (lowest_ok f zero p q _ B) as L. pose proof (highest_ok f zero p q _ B) as H.
      pose proof (down_le (lowest f zero p q)) as Dl. pose proof (up_ge (highest f zero p q)) as Uh. fold low in Dl.
      fold high in Uh.
      rewrite real_zero in L, H. lra. }
    assert (Near : forall v, holds k v -> Rabs (v - ref k) <= real far).
    { intros v V. inversion V as [? ? ? J | ? ? J | ? ? ? ? ? J | ? ? ? ? J | ? ? ? ? ? ? J | ? j' f' w e' J Hw He];
        subst; pose proof (unique _ _ _ K J) as Q; try discriminate.
      injection Q as <- <-. pose proof (N _ _ _ A Hw) as Nw.
      pose proof (near_size _ _ _ _ Nw (maximum_end _ _ _ B)) as Sw.
      pose proof (Rabs_le_inv _ _ Nw) as Iw. pose proof (Rabs_pos (w - ref j)).
      assert (St : Rabs (bent_at f w - bent_at f (ref j)) <= real (steepest f (sub p a) (add q a)) * Rabs (w - ref j)).
      { apply steepest_ok; auto; rewrite real_sub, real_add; lra. }
      rewrite Rk. replace (bent_at f w + e' - bent_at f (ref j)) with ((bent_at f w - bent_at f (ref j)) + e') by ring.
      eapply Rle_trans; [apply Rabs_triang|]. eapply Rle_trans; [|apply up_ge]. autorewrite with real.
      pose proof (Rmult_le_compat_l _ _ _ Rl Sw).
      assert (real (steepest f (sub p a) (add q a)) * Rabs (w - ref j) <=
        real (steepest f (sub p a) (add q a)) * real a); [|lra].
      apply Rmult_le_compat_l; [apply steepest_pos | exact Nw]. }
    split; [exact Rg|]. split; [exact Rk|]. split; [exact Near|]. simpl. intros v V. specialize (Near v V).
    rewrite real_add, real_larger, !real_abs_of in M. pose proof (near_size _ _ _ _ Near (maximum_end _ _ _ Rg)). lra.
Qed.

Lemma total_unit k a : form_at (unit_form k a) ref = real a * ref k.
Proof. unfold unit_form. rewrite total_put. simpl. destruct k; simpl; ring. Qed.
Lemma narrow_ok ls f lines es k l h p q : in_range f -> all_layers_ok ref ls -> Forall (entry_ok ref) es ->
  narrow ls f lines es k l h = Some (p, q) ->
  real l <= ref k <= real h -> real p <= ref k <= real q.
Proof.
  intros I Ls E. unfold narrow. pose proof (layered_ok f ref I ls Ls) as J.
  destruct (back f lines (layered ls f) es (unit_form k one) zero) as [a|] eqn:A; [|discriminate].
  destruct (back f lines (layered ls f) es (unit_form k (neg one)) zero) as [b|] eqn:B; [|discriminate].
  intros [= <- <-] H.
  apply (back_ok f lines ref I _ es E J) in A. apply (back_ok f lines ref I _ es E J) in B. rewrite total_unit in *.
  autorewrite with real in *. pose proof (down_le a). pose proof (down_le b).
  split; [apply Rmax_lub; lra | apply Rmin_glb; lra].
Qed.

Lemma put_in_range f k l h : in_range f -> real l <= ref k <= real h -> in_range (put k (Some (l, h)) f).
Proof.
  intros I R j p q G. destruct (key_dec k j) as [<-|D];
    [rewrite get_put_same in G; injection G as <- <-; auto | rewrite get_put_other in G by auto; eauto].
Qed.
Lemma met_ok f k r rs l h p q : in_range f -> ref k = maximum (ref r) (map ref rs) -> met f r rs l h = (p, q) ->
  real l <= ref k <= real h -> real p <= ref k <= real q.
Proof.
  intros I M. unfold met. destruct (taps f (r :: rs)) as [[|t ts]|] eqn:T; try (intros [= <- <-]; auto; fail).
  intros [= <- <-] H. pose proof (best_ends f k r rs t ts I M T). rewrite real_larger, real_smaller.
  split; [apply Rmax_lub; lra | apply Rmin_glb; lra].
Qed.
Lemma won_ok f k l h ks r rs : in_range f -> real l <= ref k <= real h -> (forall j, In j ks -> ref j <= ref k) ->
  ref k = maximum (ref r) (map ref rs) -> in_range (won f l h ks r rs).
Proof.
  intros I R A M. unfold won. assert (L : in_range (lowered h ks f)).
  { revert f I. induction ks as [|j ks IH]; intros f I; simpl; auto. apply IH; [intros; apply A; now right|].
    destruct (get j f) as [[p q]|] eqn:G; auto. apply put_in_range; auto. specialize (I _ _ _ G).
    specialize (A j (or_introl eq_refl)).
    rewrite real_smaller. split; [lra | apply Rmin_glb; lra]. }
  destruct rs; auto. destruct (get r _) as [[p q]|] eqn:G; auto. apply put_in_range; auto. specialize (L _ _ _ G).
  simpl in M.
  rewrite real_larger. split; [apply Rmax_lub; lra | lra].
Qed.
Lemma below_maximum k x : In (k, x) net -> forall i, In i (contenders x) -> ref i <= ref k.
Proof.
  intros K i. pose proof (reference k x K) as Rk. destruct x as [l h | s | j | j js | j f]; simpl in *; try tauto.
  rewrite Rk. destruct (largest_fold (map ref js) (ref j)) as [A [B _]]. intros [<-|H]; auto. apply B. now apply in_map.
Qed.

Lemma visit_ok tight lines g kx g' : In kx net -> ok g -> visit made runs unit tight lines g kx = Some g' ->
  ok g' /\ safe kx.
Proof.
  destruct kx as [k x]. intros K O. unfold visit. destruct (bounded unit g x) as [[[[l h] e] d]|] eqn:B;
    [|discriminate].
  destruct (sum_at made (facts g) k x) as [at_k|] eqn:At; [|discriminate].
  destruct (bounded_ok g k x l h e d at_k K O B At) as [Rg [En [Nr Sf]]]. destruct O as [I [N [F [V [W Y]]]]].
  destruct (match get k (facts g) with None => (l, h) | Some (p, q) => (larger l p, smaller h q) end) as [l0 h0] eqn:C.
  assert (R0 : real l0 <= ref k <= real h0).
  { destruct (get k (facts g)) as [[p q]|] eqn:G; injection C as <- <-;
      auto. specialize (I _ _ _ G). rewrite real_larger, real_smaller.
    split; [apply Rmax_lub; lra | apply Rmin_glb; lra]. }
  destruct (match get k (among g) with None => (l0, h0) | Some (r, rs) => met (facts g) r rs l0 h0 end) as [l1 h1]
    eqn:C1.
  assert (R1 : real l1 <= ref k <= real h1).
  { destruct (get k (among g)) as [[r rs]|] eqn:G; [eapply met_ok; eauto | injection C1 as <- <-; auto]. }
  set (es := (k, _, (e, at_k)) :: entries g). assert (Es : Forall (entry_ok ref) es).
  { constructor; auto. destruct (get k (among g)) as [[i rs]|] eqn:G; auto. exact (W _ _ _ G). }
  set (ends := match get k tight with Some _ => _ | None => _ end). destruct ends as [[l2 h2]|] eqn:D; [|discriminate].
  intros [= <-].
  assert (R2 : real l2 <= ref k <= real h2).
  { unfold ends in D. destruct (get k tight) as [always|]; [|injection D as <- <-; auto].
    destruct (always || _); [|injection D as <- <-; auto]. eapply narrow_ok; eauto. }
  split; [|auto]. split; [|split; [|split; [|split; [|split]]]]; simpl; auto; [| | |now apply with_layer_ok].
  - apply put_in_range; auto. destruct (get k (among g)) as [[r rs]|] eqn:G; auto. eapply won_ok; eauto.
    now apply below_maximum.
  - intros j a v G. destruct (key_dec k j) as [<-|Nk];
      [rewrite get_put_same in G; injection G as <-; auto | rewrite get_put_other in G by auto; eauto].
  - rewrite V. simpl. destruct (at_most l2 h2) eqn:A; auto. apply not_at_most in A. lra.
Qed.
Lemma visits_ok tight lines part : incl part net -> forall g g', ok g ->
  visits made runs unit tight lines g part = Some g' -> ok g' /\ Forall safe part.
Proof.
  induction part as [|kx part IH]; intros P g g' O; simpl; [intros [= <-]; auto|].
  destruct (visit made runs unit tight lines g kx) as [g1|] eqn:V; [|discriminate]. intros E.
  destruct (visit_ok tight lines g kx g1) as [O1 S]; auto; [apply P; now left|].
  destruct (IH (fun a H => P a (or_intror H)) g1 g' O1 E). auto.
Qed.
Theorem forward_ok tight lines given among g : in_range given -> maximal among ->
  forward made runs unit tight lines given among net = Some g -> ok g /\ Forall safe net.
Proof.
  intros I W E. apply (visits_ok tight lines net (incl_refl _) _ _) in E; auto.
  split; [auto|]. split; [|split; [|split; [|split]]]; simpl; auto; [intros k d v G | intros k l G]; simpl in G;
    discriminate.
Qed.
End Meaning.
