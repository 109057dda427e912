(* Sums that read the same cells, replaced together on the way back: a vector times a matrix.

   The way back (CheckBackward.v) takes the last cell out of a form, one at a time; of a layer of sums that read the
   same cells that is the same as one product of a vector and a matrix, and most of the time goes there. A row of the
   matrix is one whole number, its weights in slots of so many bits, so a row times a number, and rows added, are two
   operations. The slots of the result are its coefficients as long as none can be too long, which is checked; else
   the sums are taken one by one. Coefficients are cut to 52 places first, and what is cut off is charged by the
   cell's range. `layered_ok`: what is left is a lower bound of what was there. *)
From Coq Require Import Reals ZArith List Lra Lia Bool.
From Flocq Require Import Core.
From Specgrad Require Import CheckNumber CheckTrie CheckTrees CheckBend CheckExecution CheckSums CheckBackward.
Import ListNotations.
Open Scope R_scope.

(* --- the program --- *)
(* a trie's; width: how many bits its even part has *)
Inductive shape := Bare | Slots (width : Z) (even odd : shape).
Definition rounded (x w : Z) : Z := Z.shiftr (x + Z.shiftl 1 (w - 1)) w.               (* x / 2^w, to nearest *)
Definition join_part (x y : option number) : option number := match x, y with None, _ => y | _, None => x
  | Some x, Some y => Some (add x y) end.
Fixpoint join (t f : form) {struct t} : form :=
  match t, f with
  | Empty, _ => f
  | _, Empty => t
  | Fork h e o, Fork h' e' o' => Fork (join_part h h') (join e e') (join o o')
  end.

Section Slots.
Variable slot : Z.                                                  (* bits *)
Fixpoint shaped (t : trie bool) : shape * Z :=                      (* and all its bits *)
  match t with
  | Empty => (Bare, 0%Z)
  | Fork _ e o => let (a, n) := shaped e in let (b, m) := shaped o in (Slots n a b, slot + (n + m))%Z
  end.
Section Scale.
Variable scale : Z.                                                 (* slots are multiples of 2^scale *)
Definition whole (heaviest : Z) (h : option number) : option Z :=
  match h with
  | None => Some 0%Z
  | Some x => let v := shifted x scale in if Z.leb scale (exponent x) && Z.leb (Z.abs v) heaviest then Some v else None
  end.
Fixpoint pack (heaviest : Z) (s : shape) (t : form) : option Z :=
  match t, s with
  | Empty, _ => Some 0%Z
  | Fork _ _ _, Bare => None
  | Fork h e o, Slots w a b => match whole heaviest h, pack heaviest a e, pack heaviest b o with
    | Some v, Some p, Some q => Some (v + Z.shiftl (p + Z.shiftl q w) slot)%Z
    | _, _, _ => None
    end
  end.
Definition part (v : Z) : option number := if Z.eqb v 0 then None else Some (Number v scale).
Fixpoint unpack (s : shape) (x : Z) : form :=
  match s with
  | Bare => Empty
  | Slots _ Bare Bare => fork (part x) Empty Empty                  (* as the rest, sooner *)
  | Slots w a b => let y := rounded x slot in let z := rounded y w in
      fork (part (x - Z.shiftl y slot)) (unpack a (y - Z.shiftl z w)) (unpack b z)
  end.
End Scale.
End Slots.

Record lane := Lane { lane_key : key; packed_row : Z; lane_bias : number; lane_error : number }.        (* a sum *)
Record layer := Layer { slot : Z; scale : Z; heaviest : Z; frame : shape; lanes : list lane }.
Definition fine := 52%Z.                                            (* coefficients are shortened to so many places *)
Fixpoint finest (t : form) (e : Z) : Z :=
  match t with Empty => e | Fork h x y => finest x
    (finest y match h with None => e | Some v => Z.min (exponent v) e end) end.
Fixpoint longest (e : Z) (t : form) (m : Z) : Z :=
  match t with Empty => m | Fork h x y => longest e x
    (longest e y match h with None => m | Some v => Z.max (Z.abs (shifted v e)) m end) end.
Fixpoint marked (t : form) (u : trie bool) : trie bool :=
  match t, u with
  | Empty, _ => u
  | Fork _ e o, Empty => Fork None (marked e Empty) (marked o Empty)
  | Fork _ e o, Fork _ e' o' => Fork None (marked e e') (marked o o')
  end.
Definition over {A} (es : list entry) (f : form -> A -> A) (a : A) : A :=
  fold_right (fun e a => f (fst (snd (snd e))) a) a es.
Fixpoint packed (slot scale most : Z) (s : shape) (es : list entry) : option (list lane) :=
  match es with
  | [] => Some []
  | (k, Sum _, (e, (t, b))) :: es => match pack slot scale most s t, packed slot scale most s es with
    | Some p, Some ms => Some (Lane k p b e :: ms)
    | _, _ => None
    end
  | _ => None
  end.
Definition layer_of (es : list entry) : option layer :=
  let scale := over es finest 0%Z in
  let most := over es (longest scale) 1%Z in
  let slot := (64 * ((Z.log2 most + fine + 20) / 64 + 1))%Z in
  let s := fst (shaped slot (over es marked Empty)) in
  match packed slot scale most s es with
  | Some ms => if Z.leb 1 slot && Z.leb 0 most then Some (Layer slot scale most s ms) else None
  | None => None
  end.
(* runs of sums that read the same: how many, by the last of each *)
Fixpoint same_keys (ks js : list key) : bool :=
  match ks, js with [], [] => true | k :: ks, j :: js => (if key_dec k j then true else false) && same_keys ks js
    | _, _ => false end.
Definition closed (ks : list key) (t : trie nat) : trie nat := match ks with k :: _ :: _ => put k (Some (length ks)) t
  | _ => t end.
Fixpoint runs_of (net : network) (xs ks : list key) (t : trie nat) : trie nat :=
  match net with
  | [] => closed ks t
  | (k, Sum s) :: net => let ys := sources (Sum s) in
      if same_keys xs ys then runs_of net xs (k :: ks) t else runs_of net ys [k] (closed ks t)
  | _ :: net => runs_of net [] [] (closed ks t)
  end.
Definition with_layer (runs : trie nat) (k : key) (es : list entry) (t : trie layer) : trie layer :=
  match get k runs with None => t | Some n => match layer_of (firstn n es) with None => t | Some l => put k (Some l) t
    end end.

(* a sum without the cells that can have one value only: constants *)
Fixpoint pruned (t : form) (facts : ranges) (c : number) {struct t} : state :=
  match t, facts with
  | Fork h e o, Fork r e' o' => let (e, c) := pruned e e' c in let (o, c) := pruned o o' c in
      match h, r with
      | Some w, Some (l, u) => if at_most u l then (fork None e o, if Z.eqb (mantissa l) 0 then c else add c (mul w l))
        else (fork h e o, c)
      | _, _ => (fork h e o, c)
      end
  | _, _ => (t, c)
  end.

(* the cells' coefficients, shortened, times their rows; what is cut off is charged by the cell's range *)
Fixpoint gather (facts : ranges) (ms : list lane) (f : form) (c : number) (x used : Z) : option (state * Z * Z) :=
  match ms with
  | [] => Some (f, c, x, used)
  | Lane k p b e :: ms => match get k f with
    | None => gather facts ms f c x used
    | Some a => match get k facts with
      | None => None
      | Some (l, _) => let n := Z.shiftl (mantissa a) (exponent a + fine) in
          let short := Number n (- fine) in let rest := sub a short in
          if negative rest then None else
          gather facts ms (put k None f) (add (sub (add c (mul rest l)) (mul (abs_of short) e)) (mul short b))
            (x + n * p)
            (used + Z.abs n)
      end
    end
  end.
Definition multiplied (facts : ranges) (l : layer) (s : state) : option state :=
  match gather facts (lanes l) (fst s) (snd s) 0 0 with
  | Some (f, c, x, used) => if Z.ltb (used * heaviest l) (Z.shiftl 1 (slot l - 1))
      then Some (join (unpack (slot l) (scale l - fine) (frame l) x) f, c) else Some s
  | None => Some s
  end.
Definition layered (layers : trie layer) (facts : ranges) (k : key) : option (state -> option state) :=
  match get k layers with None => None | Some l => Some (multiplied facts l) end.

(* --- what it means --- *)
Lemma total_join t : forall f r, form_at (join t f) r = form_at t r + form_at f r.
Proof.
  induction t as [|h e He o Ho]; intros [|h' e' o'] r; cbn [join form_at]; try ring. rewrite He, Ho.
  destruct h, h'; simpl; rewrite ?real_add; ring.
Qed.
Lemma rounded_ok lo hi w : (0 <= w -> 2 * Z.abs lo < 2 ^ w -> rounded (lo + 2 ^ w * hi) w = hi)%Z.
Proof.
  intros W L. unfold rounded. destruct (Z.eq_dec w 0) as [->|N];
    [change (2 ^ 0)%Z with 1%Z in *; change (Z.shiftl 1 (0 - 1)) with 0%Z; rewrite Z.shiftr_0_r; lia|].
  rewrite Z.shiftr_div_pow2, Z.shiftl_1_l by lia. assert (E : (2 ^ w = 2 * 2 ^ (w - 1))%Z) by
    (rewrite <- Z.pow_succ_r by lia; f_equal; lia).
  symmetry. apply (Z.div_unique _ _ _ (lo + 2 ^ (w - 1))); lia.
Qed.

Section Meaning.
Variable b : Z.                                                     (* bits of a slot *)
Hypothesis some_bits : (1 <= b)%Z.
Fixpoint bits (s : shape) : Z := match s with Bare => 0 | Slots w e o => b + (w + bits o) end%Z.
Fixpoint fits_slots (s : shape) : Prop := match s with Bare => True | Slots w e o => w = bits e /\ fits_slots e /\
  fits_slots o end.
Fixpoint number_of (s : shape) (v : key -> Z) : Z :=
  match s with Bare => 0 | Slots w e o => v Here +
    2 ^ b * (number_of e (fun k => v (Even k)) + 2 ^ w * number_of o (fun k => v (Odd k))) end%Z.
Fixpoint slots_at (s : shape) (v : key -> Z) (f : key -> R) : R :=
  match s with Bare => 0 | Slots _ e o => IZR (v Here) * f Here +
    slots_at e (fun k => v (Even k)) (fun k => f (Even k)) +
    slots_at o (fun k => v (Odd k)) (fun k => f (Odd k)) end.

Lemma bits_nonneg s : fits_slots s -> (0 <= bits s)%Z.
Proof. induction s; simpl; [lia|]. intros [-> [A B]]. specialize (IHs1 A). specialize (IHs2 B). lia. Qed.
Lemma shaped_sound t : fits_slots (fst (shaped b t)) /\ bits (fst (shaped b t)) = snd (shaped b t).
Proof.
  induction t as [|h e He o Ho]; simpl; auto. destruct (shaped b e) as [x n]. destruct (shaped b o) as [y m].
  simpl in *.
  destruct He as [A ->], Ho as [B ->]. auto.
Qed.
Lemma number_add s n : forall v u, number_of s (fun k => v k + n * u k)%Z = (number_of s v + n * number_of s u)%Z.
Proof. induction s as [|w e He o Ho]; intros v u; simpl; [ring|].
rewrite (He (fun k => v (Even k))), (Ho (fun k => v (Odd k))). ring. Qed.
Lemma slots_at_add s n : forall v u f, slots_at s (fun k => v k + n * u k)%Z f = slots_at s v f +
  IZR n * slots_at s u f.
Proof.
  induction s as [|w e He o Ho]; intros v u f; simpl; [ring|].
  rewrite (He (fun k => v (Even k))), (Ho (fun k => v (Odd k))), plus_IZR, mult_IZR. ring.
Qed.
Lemma number_zero s : number_of s (fun _ => 0%Z) = 0%Z.
Proof. induction s as [|w e He o Ho]; simpl; auto. rewrite He, Ho. ring. Qed.
Lemma slots_at_zero s : forall f, slots_at s (fun _ => 0%Z) f = 0.
Proof. induction s as [|w e He o Ho]; intros f; simpl; auto. rewrite He, Ho. ring. Qed.

Lemma pack_ok scale heaviest s : (0 <= heaviest)%Z -> fits_slots s -> forall t p, pack b scale heaviest s t = Some p ->
  exists v, p = number_of s v /\ (forall k, Z.abs (v k) <= heaviest)%Z /\
    forall f, form_at t f = slots_at s v f * bpow radix2 scale.
Proof.
  intros M. induction s as [|w e He o Ho]; intros S [|h x y] p; simpl; try discriminate.
  1, 2: intros [= <-]; exists (fun _ => 0%Z); split;
    [now rewrite ?number_zero, ?Z.mul_0_r | split; [simpl; lia | intros f; rewrite ?slots_at_zero; ring]].
  destruct S as [-> [Se So]]. destruct (whole scale heaviest h) as [v|] eqn:V; [|discriminate].
  destruct (pack _ _ _ e x) as [q|] eqn:X; [|discriminate]. destruct (pack _ _ _ o y) as [r|] eqn:Y; [|discriminate].
  intros [= <-].
  destruct (He Se _ _ X) as [ve [-> [Be Te]]]. destruct (Ho So _ _ Y) as [vo [-> [Bo To]]].
  exists (fun k => match k with Here => v | Even k => ve k | Odd k => vo k end). split; [|split].
  - pose proof (bits_nonneg e Se). rewrite !Z.shiftl_mul_pow2 by lia.
    change (v + (number_of e ve + number_of o vo * 2 ^ bits e) * 2 ^ b = v +
      2 ^ b * (number_of e ve + 2 ^ bits e * number_of o vo))%Z. ring.
  - intros [|k|k]; auto. destruct h as [a|]; simpl in V; [|injection V as <-; simpl; lia].
    destruct (Z.leb scale (exponent a)); [|discriminate]. destruct (Z.leb_spec (Z.abs (shifted a scale)) heaviest);
      [|discriminate]. now injection V as <-.
  - intros f. rewrite (Te (fun k => f (Even k))), (To (fun k => f (Odd k))). simpl. change (fun k => ve k) with ve.
    change (fun k => vo k) with vo.
    assert (coefficient h = IZR v * bpow radix2 scale) as ->; [|ring]. destruct h as [a|]; simpl in *;
      [|injection V as <-; simpl; ring].
    destruct (Z.leb_spec scale (exponent a)); [|discriminate]. destruct (Z.leb _ _); [|discriminate]. injection V as <-.
    symmetry. now apply shifted_real.
Qed.

Lemma number_bound s : fits_slots s -> forall v, (forall k, Z.abs (v k) < 2 ^ (b - 1))%Z ->
  (2 * Z.abs (number_of s v) < 2 ^ bits s)%Z.
Proof.
  induction s as [|w e He o Ho]; intros S v B; simpl number_of; simpl bits; [simpl; lia|]. destruct S as [-> [Se So]].
  specialize (He Se (fun k => v (Even k)) (fun k => B (Even k))).
  specialize (Ho So (fun k => v (Odd k)) (fun k => B (Odd k))). specialize (B Here).
  pose proof (bits_nonneg e Se). pose proof (bits_nonneg o So). rewrite !Z.pow_add_r by lia.
  assert (E : (2 ^ b = 2 * 2 ^ (b - 1))%Z) by (rewrite <- Z.pow_succ_r by lia; f_equal; lia). rewrite E.
  set (x := number_of e _) in *. set (y := number_of o _) in *. set (T := (2 ^ (b - 1))%Z) in *.
  set (P := (2 ^ bits e)%Z) in *. set (Q := (2 ^ bits o)%Z) in *.
  assert (0 < T)%Z by (unfold T; apply Z.pow_pos_nonneg; lia).
  assert (0 < P)%Z by (unfold P; apply Z.pow_pos_nonneg; lia).
  assert (I : (2 * Z.abs (x + P * y) <= P * Q - 1)%Z).
  { assert (Z.abs (x + P * y) <= Z.abs x + P * Z.abs y)%Z by (rewrite <- (Z.abs_eq P) at 2 by lia; rewrite <- Z.abs_mul;
      apply Z.abs_triangle). nia. }
  assert (Z.abs (v Here + 2 * T * (x + P * y)) <= Z.abs (v Here) + 2 * T * Z.abs (x + P * y))%Z.
  { rewrite <- (Z.abs_eq (2 * T)) at 2 by lia. rewrite <- Z.abs_mul. apply Z.abs_triangle. }
  nia.
Qed.
Lemma part_real scale v : coefficient (part scale v) = IZR v * bpow radix2 scale.
Proof. unfold part. destruct (Z.eqb_spec v 0) as [->|]; simpl; unfold real; simpl; ring. Qed.
Lemma unpack_ok scale s : fits_slots s -> forall v, (forall k, Z.abs (v k) < 2 ^ (b - 1))%Z ->
  forall f, form_at (unpack b scale s (number_of s v)) f = slots_at s v f * bpow radix2 scale.
Proof.
  induction s as [|w e He o Ho]; intros S v B f; [simpl; ring|]. destruct S as [-> [Se So]].
  assert (Split : (rounded (number_of (Slots (bits e) e o) v) b = number_of e (fun k => v (Even k)) +
    2 ^ bits e * number_of o (fun k => v (Odd k)))%Z).
  { simpl. apply rounded_ok; [lia|]. specialize (B Here). replace (2 ^ b)%Z with (2 * 2 ^ (b - 1))%Z;
      [lia | rewrite <- Z.pow_succ_r by lia; f_equal; lia]. }
  pose proof (number_bound e Se (fun k => v (Even k)) (fun k => B (Even k))) as Be. pose proof (bits_nonneg e Se) as We.
  pose proof (rounded_ok (number_of e (fun k => v (Even k))) (number_of o (fun k => v (Odd k))) (bits e) We Be) as Half.
  assert (All : form_at (fork (part scale (number_of (Slots (bits e) e o) v -
    Z.shiftl (rounded (number_of (Slots (bits e) e o) v) b) b))
    (unpack b scale e (rounded (number_of (Slots (bits e) e o) v) b -
      Z.shiftl (rounded (rounded (number_of (Slots (bits e) e o) v) b) (bits e)) (bits e)))
    (unpack b scale o (rounded (rounded (number_of (Slots (bits e) e o) v) b) (bits e)))) f =
      slots_at (Slots (bits e) e o) v f * bpow radix2 scale).
  { rewrite Split, Half, total_fork, !Z.shiftl_mul_pow2 by lia. cbn [form_at number_of slots_at]. rewrite part_real.
    match goal with |- IZR ?x * _ * _ + form_at (unpack _ _ _ ?y) _ + _ = _ => replace x with (v Here) by ring;
      replace y with (number_of e (fun k => v (Even k))) by ring end.
    rewrite He, Ho by auto. ring. }
  destruct e, o; try exact All. cbn [unpack number_of slots_at]. rewrite total_fork. cbn [form_at]. rewrite part_real.
  match goal with |- IZR ?x * _ * _ + _ + _ = _ => replace x with (v Here) by ring end. ring.
Qed.
End Meaning.

Section Steps.
Variables (facts : ranges) (ref : key -> R).
Hypothesis in_range : forall k l h, get k facts = Some (l, h) -> real l <= ref k <= real h.
Definition layer_ok (l : layer) : Prop := (1 <= slot l)%Z /\ (0 <= heaviest l)%Z /\ fits_slots (slot l) (frame l) /\
  forall m, In m (lanes l) -> exists t, Rabs (ref (lane_key m) - meaning ref (t, lane_bias m)) <= real (lane_error m) /\
    pack (slot l) (scale l) (heaviest l) (frame l) t = Some (packed_row m).
Definition all_layers_ok (t : trie layer) : Prop := forall k l, get k t = Some l -> layer_ok l.

Lemma packed_ok s c m sh es : Forall (entry_ok ref) es -> forall ms, packed s c m sh es = Some ms ->
  forall n, In n ms -> exists t, Rabs (ref (lane_key n) - meaning ref (t, lane_bias n)) <= real (lane_error n) /\
    pack s c m sh t = Some (packed_row n).
Proof.
  induction 1 as [|[[k x] [e [t b]]] es E _ IH]; intros ms; simpl; [intros [= <-]; simpl; tauto|].
  destruct x as [|su| | |]; try discriminate.
  destruct (pack _ _ _ _ t) as [p|] eqn:P; [|discriminate]. destruct (packed _ _ _ _ es) as [us|]; [|discriminate].
  intros [= <-] n [<-|H]; [|eauto].
  exists t. auto.
Qed.
Lemma layer_of_ok es l : Forall (entry_ok ref) es -> layer_of es = Some l -> layer_ok l.
Proof.
  intros E. unfold layer_of. set (c := over es finest _). set (m := over es (longest c) _). set (s := (64 * _)%Z).
  set (sh := fst _).
  destruct (packed _ _ _ _ _) as [ms|] eqn:P; [|discriminate]. destruct (Z.leb 1 s) eqn:S; [|discriminate].
  destruct (Z.leb 0 m) eqn:M; [|discriminate].
  intros [= <-]. apply Z.leb_le in S, M. split; [auto|]. split; [auto|].
  split; [apply shaped_sound | now apply (packed_ok _ _ _ _ es)].
Qed.
Lemma with_layer_ok runs k es t : Forall (entry_ok ref) es -> all_layers_ok t -> all_layers_ok (with_layer runs k es t).
Proof.
  intros E T. unfold with_layer. destruct (get k runs) as [n|]; auto. destruct (layer_of _) as [l|] eqn:L; auto.
  intros j m.
  destruct (key_dec k j) as [<-|D]; [rewrite get_put_same; intros [= <-] | rewrite get_put_other by auto; apply T].
  eapply layer_of_ok; [|exact L]. revert n L. clear - E. intros n _. revert n. induction E; intros [|n]; simpl;
    constructor; auto.
Qed.
Lemma pruned_ok t : forall g (r : key -> R) c, (forall k l h, get k g = Some (l, h) -> real l <= r k <= real h) ->
  meaning r (pruned t g c) = meaning r (t, c).
Proof.
  induction t as [|h e He o Ho]; intros [|f e' o'] r c I; auto. cbn [pruned].
  specialize (He e' (fun k => r (Even k)) c (fun k => I (Even k))). destruct (pruned e e' c) as [e1 c1].
  specialize (Ho o' (fun k => r (Odd k)) c1 (fun k => I (Odd k))). destruct (pruned o o' c1) as [o1 c2].
  unfold meaning in *; cbn [fst snd] in *.
  assert (Kept : form_at (fork h e1 o1) r + real c2 = form_at (Fork h e o) r + real c) by
    (rewrite total_fork; cbn [form_at]; lra).
  destruct h as [w|]; [|exact Kept]. destruct f as [[l u]|]; [|exact Kept]. destruct (at_most u l) eqn:A; [|exact Kept].
  apply at_most_real in A. pose proof (I Here l u eq_refl) as B. assert (V : r Here = real l) by lra.
  cbn [fst snd]. rewrite total_fork. cbn [form_at] in *. simpl coefficient in *. rewrite V in *.
  destruct (Z.eqb_spec (mantissa l) 0) as [Z|_]; [rewrite (mantissa_zero _ Z) in *; lra | rewrite real_add, real_mul;
    lra].
Qed.

Lemma gather_ok l ms : layer_ok l -> incl ms (lanes l) -> forall f c x used f' c' x' used' v,
  gather facts ms f c x used = Some (f', c', x', used') -> x = number_of (slot l) (frame l) v ->
    (forall k, Z.abs (v k) <= used * heaviest l)%Z ->
  exists u, x' = number_of (slot l) (frame l) u /\ (forall k, Z.abs (u k) <= used' * heaviest l)%Z /\
    slots_at (frame l) u ref * bpow radix2 (scale l - fine) + meaning ref (f', c') <=
      slots_at (frame l) v ref * bpow radix2 (scale l - fine) + meaning ref (f, c).
Proof.
  intros [S [M [Sh Ok]]]. induction ms as [|[k p b e] ms IH]; intros I f c x used f' c' x' used' v; cbn [gather].
  { intros [= <- <- <- <-] -> B. exists v. split; [auto | split; [auto | lra]]. }
  assert (I' : incl ms (lanes l)) by (intros a H; apply I; now right).
  destruct (get k f) as [a|] eqn:A; [|apply (IH I'); auto]. destruct (get k facts) as [[lo hi]|] eqn:F; [|discriminate].
  set (n := Z.shiftl _ _). set (short := Number n (- fine)). set (rest := sub a short). destruct (negative rest) eqn:N;
    [discriminate | apply not_negative in N].
  intros G X B. destruct (Ok _ (I _ (or_introl eq_refl))) as [t [E Pt]]. simpl in Pt.
  apply (pack_ok (slot l) S _ _ _ M Sh) in Pt as [w [-> [Bw Tw]]].
  apply (IH I' _ _ _ _ _ _ _ _ (fun k => v k + n * w k)%Z) in G as [u [-> [Bu U]]].
  - exists u. split; auto. split; auto. eapply Rle_trans; [exact U|]. rewrite slots_at_add.
    unfold meaning; cbn [fst snd].
    rewrite total_put, A. simpl coefficient.
    autorewrite with real. unfold meaning in E; simpl in E. rewrite Tw in E.
    set (row := slots_at (frame l) w ref) in *. unfold Z.sub. rewrite bpow_plus.
    assert (Sn : real short = IZR n * bpow radix2 (- fine)) by reflexivity.
    assert (Ra : real a = real rest + real short) by (unfold rest; rewrite real_sub; ring).
    pose proof (Rmult_le_compat_l _ _ _ N (proj1 (in_range _ _ _ F))).
    assert (Z : real short * (row * bpow radix2 (scale l) + real b - ref k) <= Rabs (real short) * real e).
    { eapply Rle_trans; [apply Rle_abs|]. rewrite Rabs_mult. apply Rmult_le_compat_l;
        [apply Rabs_pos|]. rewrite Rabs_minus_sym. exact E. }
    rewrite Ra, Rmult_plus_distr_r. replace (IZR n * row * (bpow radix2 (scale l) * bpow radix2 (- fine)))
      with (real short * (row * bpow radix2 (scale l))) by (rewrite Sn; ring).
    set (q := row * bpow radix2 (scale l)) in *. lra.
  - now rewrite X, number_add.
  - intros i. specialize (B i). specialize (Bw i). pose proof (Z.abs_triangle (v i) (n * w i)). rewrite Z.abs_mul in *.
    nia.
Qed.
Theorem layered_ok layers : all_layers_ok layers -> forall k j s s', layered layers facts k = Some j -> j s = Some s' ->
  meaning ref s' <= meaning ref s.
Proof.
  intros L k j [f c] s'. unfold layered. destruct (get k layers) as [l|] eqn:G; [|discriminate]. intros [= <-].
  apply L in G as O. unfold multiplied.
  destruct (gather _ _ _ _ _ _) as [[[[f' c'] x] used]|] eqn:A; [|intros [= <-]; lra].
  destruct (Z.ltb_spec (used * heaviest l) (Z.shiftl 1 (slot l - 1))) as [Fit|]; [|intros [= <-]; lra].
  intros [= <-]. apply (gather_ok l _ O (incl_refl _) _ _ _ _ _ _ _ _ (fun _ => 0%Z)) in A as [u [-> [B U]]];
    [|now rewrite number_zero | simpl; lia].
  rewrite slots_at_zero in U. unfold meaning in *; cbn [fst snd] in *. destruct O as [S [M [Sh _]]].
  rewrite Z.shiftl_1_l in Fit.
  rewrite total_join, (unpack_ok (slot l)) by (auto; intros i; specialize (B i); lia). lra.
Qed.
End Steps.
