(* How many roundings a term of a compiled sum may meet, and which sums are computed once.

   Linear nodes may be merged: any connected part of them is one sum over what the part reads. A term then meets F + n
   roundings: F while one coefficient is formed, neighbouring nodes being multiplied out in any order, n while n terms
   are multiplied and added. The count is the same as that of src/specgrad/proof/exact/rounding_counts.py, but for
   slices, whose cells count here as if they overlapped. That it is enough is a theorem of executions node by node
   (CompileNode.v); of merged nodes it is argued there and tested. *)
From Coq Require Import ZArith List Bool Lia.
From Specgrad Require Import CheckNumber Compile.
From Specgrad Require Window AvgPool Conv.
Import ListNotations.
Open Scope Z_scope.

(* --- what a node reads, and the roundings of its own sum --- *)
Definition operands (op : operator) : list nat :=
  match op with
  | Given _ _ => []
  | Conv _ _ _ _ _ _ _ x | Transposed _ _ _ _ _ _ _ x | Average _ _ x | Greatest _ x | Positive x | Bent _ x
  | Times _ x | Shifted _ x | Negated x | Contracted _ _ _ _ x => [x]
  | Added x y | Subtracted x y => [x; y]
  | Layout (Joined _ xs) => xs
  | Layout (Reshaped x) | Layout (Permuted _ x) | Layout (Sliced _ _ x) | Layout (Padded _ _ x) | Layout (Repeated x) =>
    [x]
  end.
Definition is_linear (op : operator) : bool :=
  match op with Given _ _ | Greatest _ _ | Positive _ | Bent _ _ => false | _ => true end.
Definition is_layout (op : operator) : bool := match op with Negated _ | Layout _ => true | _ => false end.
Definition is_kernel (op : operator) : bool :=
  match op with Conv _ _ _ _ _ _ _ _ | Transposed _ _ _ _ _ _ _ _ | Contracted _ _ _ _ _ => true | _ => false end.
Definition is_cellwise (op : operator) : bool :=
  match op with Added _ _ | Subtracted _ _ | Times _ _ | Shifted _ _ | Negated _ => true | _ => false end.
Definition product (l : list Z) : Z := fold_right Z.mul 1 l.
Definition largest_of (l : list Z) : Z := fold_right Z.max 0 l.

(* Taps that a cell may have, and cells that may read one cell, along an axis. *)
Definition most_taps (a : Window.axis) : Z :=
  match a with
  | Window.Adaptive n m => largest_of (map (fun o => Window.stop n m o - Window.start n m o) (Window.range m))
  | _ => Window.kernel a
  end.
(* At most so many cells read one. *)
Definition most_readers (a : Window.axis) : Z :=
  match a with
  | Window.Adaptive n m => Z.min m (Window.ceil_div m n + 1)
  | _ => Z.min (most_taps a) (Window.out a)
  end.

Definition biased {A} (b : option A) : Z := match b with Some _ => 1 | None => 0 end.
(* 256: whole numbers up to here are in every format without rounding. *)
Definition divisor_roundings (d : AvgPool.divisor number) (taps : Z) : Z :=
  let whole c := Z.leb 0 (exponent c) && at_most (abs_of c) (of_Z 256) in
  match d with AvgPool.By c => if whole c then 1 else 2 | _ => if Z.leb taps 256 then 1 else 2 end.
Definition taps_of (w : list Window.axis) : Z := product (map most_taps w).
Definition quotients_of (op : operator) : Z :=
  match op with Average w d _ => divisor_roundings d (taps_of w) | _ => 0 end.
Definition own_roundings (op : operator) : Z :=
  match op with
  | Conv _ g ci _ w _ b _ => ci / g * product (map Window.kernel w) + biased b
  | Transposed _ g _ co w _ b _ => co / g * product (map Window.kernel w) + biased b
  | Contracted letters _ _ _ _ => product letters
  | Average w d _ => taps_of w + divisor_roundings d (taps_of w)
  | Added _ _ | Subtracted _ _ | Times _ _ | Shifted _ _ => 1
  | _ => 0
  end.
Definition fan_out (op : operator) (cells : Z) : Z :=
  match op with
  | Average w _ _ => product (map most_readers w)
  | Layout (Repeated _) => cells
  | _ => if is_kernel op then cells else 1
  end.

(* How often a concatenation has the same argument. *)
Definition copies (op : operator) : Z :=
  match op with
  | Layout (Joined _ xs) => largest_of (map (fun x => Z.of_nat (count_occ Nat.eq_dec xs x)) xs)
  | _ => 1
  end.

(* --- parts of a region --- *)
(* A part of a region from one start to here: as one sum, a term meets at most before + formed + n roundings.
   before        roundings of the start's own value
   formed        roundings of one coefficient at nodes each of whose cells reads one cell of every argument, and those
                 of quotients by themselves: of reciprocals and divisors, the first node's too
   between       of the other nodes but the first: cells before them that one cell here reads, in all
   reached       of the same: ways to such cells from one cell of the start, in all; F is `formed` and the less of both,
                 in whichever order neighbours are multiplied out
   ways          at most so many ways lead from one cell of the start to cells here, through all arguments
   inputs        cells of the start that one cell here reads, counted with repetitions
   cells         cells of the start, in all
   others        terms from elsewhere
   nodes         nodes of the part that round
   width         cells of a concatenation that one cell here reads; of each but one, whose terms are those above, up to
                 `aside` cells from elsewhere (of `aside_cells` in all) and `aside_numbers` numbers *)
Record part := Part { before : Z; formed : Z; ways : Z; inputs : Z; cells : Z; others : Z; nodes : Z;
  width : Z; aside : Z; aside_cells : Z; aside_numbers : Z; between : Z; reached : Z }.
Record count := Count { total : Z; parts : list (nat * part) }.
Definition foreign (often : Z) (p : part) : Z :=
  let cells := width p * often - 1 in often * others p + Z.min (cells * aside p) (aside_cells p) +
    cells * aside_numbers p.
Definition terms_of (often : Z) (p : part) : Z := Z.min (often * inputs p) (cells p) + foreign often p.
Definition met (p : part) : Z := before p + formed p + Z.min (between p) (reached p) + terms_of 1 p.
Definition fresh (start : nat) (cells before : Z) : nat * part := (start, Part before 0 1 1 cells 0 0 1 0 0 0 0 0).
Definition from_outside (x : nat) (cells : Z) : count := Count 0 [fresh x cells 0].
Definition of_number : count := Count 0 [].

Definition larger_part (p q : part) : part :=
  Part (Z.max (before p) (before q)) (Z.max (formed p) (formed q)) (Z.max (ways p) (ways q))
    (Z.max (inputs p) (inputs q))
    (Z.max (cells p) (cells q)) (Z.max (others p) (others q)) (Z.max (nodes p) (nodes q)) (Z.max (width p) (width q))
    (Z.max (aside p) (aside q)) (Z.max (aside_cells p) (aside_cells q)) (Z.max (aside_numbers p) (aside_numbers q))
    (Z.max (between p) (between q)) (Z.max (reached p) (reached q)).
Fixpoint merge (start : nat) (p : part) (ps : list (nat * part)) : list (nat * part) :=
  match ps with
  | [] => [(start, p)]
  | (s, q) :: ps => if Nat.eqb s start then (s, larger_part q p) :: ps else (s, q) :: merge start p ps
  end.
Fixpoint part_from (start : nat) (ps : list (nat * part)) : option part :=
  match ps with [] => None | (s, q) :: ps => if Nat.eqb s start then Some q else part_from start ps end.
(* What `often` cells of another argument add: cells of the start, and terms from elsewhere. *)
Definition besides (start : nat) (often : Z) (m : count) : Z * Z :=
  let most ps := largest_of (map (fun sp => terms_of often (snd sp)) ps) in
  match part_from start (parts m) with
  | Some p => (often * inputs p, Z.max (most (filter (fun sp => negb (Nat.eqb (fst sp) start)) (parts m)))
    (foreign often p))
  | None => (0, match parts m with [] => often | ps => most ps end)
  end.
(* A part in a concatenation with others. *)
Definition laid_beside (start : nat) (p : part) (ms : list count) : part :=
  let each := flat_map parts ms in
  let most := largest_of (map (fun sq => width (snd sq) * aside (snd sq) +
    (if Nat.eqb (fst sq) start then 0 else inputs (snd sq))) each) in
  let numbers := Z.max (if existsb (fun m => match parts m with [] => true | _ => false end) ms then 1 else 0)
    (largest_of (map (fun sq => others (snd sq) + width (snd sq) * aside_numbers (snd sq)) each)) in
  let limit := fold_right Z.add 0 (map (fun m => largest_of
    (map (fun sq => cells (snd sq) + aside_cells (snd sq)) (parts m))) ms) in
  Part (before p) (formed p) (ways p) (inputs p) (cells p) (others p) (nodes p)
    (if Z.eqb (aside p) 0 && Z.eqb (aside_numbers p) 0 then 1 else width p)
    (aside p + most) (aside_cells p + limit) (aside_numbers p + numbers) (between p) (reached p).

Definition ways_from (start : nat) (ms : list count) : Z :=
  fold_right Z.add 0 (map (fun m => match part_from start (parts m) with Some p => ways p | None => 0 end) ms).
Definition part_rounds (sp : nat * part) : bool := negb (Z.eqb (nodes (snd sp)) 0).
(* Cells of a concatenation hold terms of other parts, one of which is merged. *)
Definition merges_beside (start : nat) (p : part) (mine : list (nat * part)) : bool :=
  andb (negb (Z.eqb (aside p) 0)) (existsb (fun sq => andb (negb (Nat.eqb (fst sq) start)) (part_rounds sq)) mine).
(* Copies of a cell are added up by the first node, too. *)
Definition counted_later (p : part) (z : Z) : Z := if andb (Z.eqb (nodes p) 0) (Z.leb (ways p) 1) then 0 else z.
(* A part with one more node, which reads `often` cells of the node before; `quotients` of its own roundings are met by
   its constants alone. *)
Definition grown_part (p : part) (own quotients ways_here often inputs others : Z) : part :=
  let single := Z.eqb often 1 in
  let sums := own - quotients in
  Part (before p) (formed p + quotients + counted_later p (if single then Z.min sums (ways p) else 0)) ways_here
    (Z.min inputs (cells p)) (cells p) others (nodes p + 1) (width p * often) (aside p) (aside_cells p)
    (aside_numbers p) (between p * often + counted_later p (if single then 0 else sums))
    (reached p + counted_later p (if single then 0 else ways p)).
Definition with_ways (p : part) (w : Z) : part :=
  Part (before p) (formed p) w (inputs p) (cells p) (others p) (nodes p) (width p) (aside p) (aside_cells p)
    (aside_numbers p) (between p) (reached p).
Definition without {A} (n : nat) (l : list A) : list A := firstn n l ++ skipn (S n) l.
Definition often_of (cellwise : bool) (own : Z) (n : nat) : Z :=
  if orb cellwise (negb (Nat.eqb n 0)) then 1 else own + 1.
Definition others_of (args : list count) (n : nat) : list (nat * count) :=
  without n (combine (seq 0 (length args)) args).
Definition more_of (args : list count) (own : Z) (cellwise : bool) (n : nat) (start : nat) : list (Z * Z) :=
  map (fun mb => besides start (often_of cellwise own (fst mb)) (snd mb)) (others_of args n).
Definition grown_of (args : list count) (own quotients : Z) (cellwise : bool) (fan : Z) (n : nat) (sp : nat * part) :
  part :=
  grown_part (snd sp) own quotients (ways_from (fst sp) args * fan) (often_of cellwise own n)
    (fold_left Z.add (map fst (more_of args own cellwise n (fst sp))) (inputs (snd sp) * often_of cellwise own n))
    (fold_left Z.add (map snd (more_of args own cellwise n (fst sp))) (others (snd sp) * often_of cellwise own n)).
Definition is_merged (args : list count) (n : nat) (mine : list (nat * part)) (sp : nat * part) : bool :=
  orb (existsb (fun mb => existsb part_rounds (parts (snd mb))) (others_of args n))
    (merges_beside (fst sp) (snd sp) mine).
Definition grown (args : list count) (own quotients : Z) (cellwise : bool) (fan : Z) (n : nat)
  (mine : list (nat * part)) (sp : nat * part) : nat * part * Z :=
  let p := grown_of args own quotients cellwise fan n sp in
  (fst sp, p, if orb (Z.ltb 1 (nodes p)) (is_merged args n mine sp) then met p else 0).
(* The count after a linear node; args: counts of its arguments, the first of which a sum reads often. *)
Definition after (args : list count) (own quotients : Z) (cellwise : bool) (here : nat) (size fan : Z) : option count :=
  let most := largest_of (map total args) in
  let numbered := combine (seq 0 (length args)) args in
  if Z.eqb own 0 then
    Some (Count most (fold_left (fun ps na => fold_left (fun ps sp =>
      let p := laid_beside (fst sp) (snd sp) (without (fst na) args) in
      merge (fst sp) (with_ways p (ways_from (fst sp) args * fan)) ps)
      (parts (snd na)) ps) numbered []))
  else
    let grown_by na := map (grown args own quotients cellwise fan (fst na) (parts (snd na))) (parts (snd na)) in
    let all := flat_map grown_by numbered in
    let whole := Z.max (most + own) (largest_of (map snd all)) in
    let ps := fold_left (fun ps g => merge (fst (fst g)) (snd (fst g)) ps) all [] in
    let ps := match ps with [] => [] | _ => ps ++ [fresh here size whole] end in
    if Nat.ltb 64 (length ps) || Z.leb (2 ^ 22) whole then None else Some (Count whole ps).

(* --- which sums are computed once --- *)
Definition member (n : nat) (l : list nat) : bool := existsb (Nat.eqb n) l.
(* Nodes whose value enters a later sum, directly or through layout; `nodes` begin with the last. *)
Fixpoint feeding (nodes : list (nat * operator)) (yes : list nat) : list nat :=
  match nodes with
  | [] => yes
  | (i, op) :: nodes => feeding nodes (if is_linear op && (negb (is_layout op) || member i yes) then operands op ++ yes
    else yes)
  end.
(* Nodes of which each reader may compute its own copy: a linear node is among the readers, and there are several reads,
   or every reader is such a node, or has several cells that read one. *)
Fixpoint copied (reads : nat -> nat) (linear : list nat) (sizes : nat -> Z) (nodes : list (nat * operator))
  (kept yes : list nat) : list nat :=
  match nodes with
  | [] => yes
  | (i, op) :: nodes =>
      let mine := member i linear && (Nat.ltb 1 (reads i) || negb (member i kept)) in
      let twice := is_linear op && Z.ltb 1 (fan_out op (sizes i)) in
      copied reads linear sizes nodes (if mine || twice then kept else operands op ++ kept)
        (if mine then i :: yes else yes)
  end.

(* --- constants that a runtime may fold into one another --- *)
Definition bits_of (cs : list number) : Z := largest_of (map bits_above cs).
Definition weights_of (shape : list Z) (op : operator) : list (list number) :=
  let at_all s (f : array number) := map f (positions s) in
  match op with
  | Conv _ g ci co w f b _ | Transposed _ g ci co w f b _ =>
      at_all (co :: ci / g :: map Window.kernel w) f :: match b with
        | Some b => [at_all [match op with Conv _ _ _ _ _ _ _ _ => co | _ => ci end] b] | None => [] end
  | Times c _ | Shifted c _ => [at_all shape c]
  | _ => []
  end.
Definition factors (extents : list Z) (op : operator) : Z :=
  match op with
  | Contracted letters _ at_w f _ => bits_of (map f (positions (pick at_w (extents ++ letters))))
  | Average _ (AvgPool.By c) _ => match reciprocal c with Some r => bits_above r | None => 0 end
  | _ => fold_right (fun cs b => bits_of cs + b) 0 (weights_of extents op)
  end.
Definition bit_length (n : Z) : Z := if Z.leb n 0 then 0 else Z.log2 n + 1.

(* --- of a whole graph --- *)
Definition dedup (l : list nat) : list nat := fold_right (fun n l => if member n l then l else n :: l) [] l.
Fixpoint counts (sizes : nat -> Z) (i : nat) (ns : list node) (known : list (option count * Z)) :
  option (list (option count * Z)) :=
  match ns with
  | [] => Some known
  | n :: ns =>
      let op := what n in
      if negb (is_linear op) then counts sizes (S i) ns (known ++ [(None, 0)]) else
      let of_arg x := match nth x known (None, 0) with (Some m, _) => m | (None, _) => from_outside x (sizes x) end in
      let constant := match op with Conv _ _ _ _ _ _ (Some _) _ | Transposed _ _ _ _ _ _ (Some _) _
        | Shifted _ _ => [of_number] | _ => [] end in
      let args := map of_arg (rev (dedup (rev (operands op)))) ++ constant in
      let own := own_roundings op in
      let bits := largest_of (map (fun x => snd (nth x known (None, 0))) (operands op)) + bit_length own +
        factors (extents n) op in
      match after args own (quotients_of op) (is_cellwise op) i (sizes i) (fan_out op (sizes i) * copies op) with
      | Some m => if Z.leb 127 bits then None else counts sizes (S i) ns (known ++ [(Some m, bits)])
      | None => None
      end
  end.
Definition manners_of (ns : list node) (outputs : list nat) : option (nat -> manner) :=
  let size_list := map (fun n => product (extents n)) ns in
  let sizes x := nth x size_list 0 in
  let reads := flat_map (fun n => operands (what n)) ns ++ outputs in
  let linear := flat_map (fun n => if is_linear (what n) then operands (what n) else []) ns in
  let backward := rev (combine (seq 0 (length ns)) (map what ns)) in
  let feeds := feeding backward [] in
  let apart := copied (fun i => count_occ Nat.eq_dec reads i) linear sizes backward [] [] in
  match counts sizes 0 ns [] with
  | None => None
  | Some known =>
      let list := map (fun in_ : nat * node =>
        let (i, n) := in_ in
        let op := what n in let kernel := is_kernel op in let copied := member i apart in
        let m := if kernel || Z.ltb 1 (fan_out op (sizes i)) || copied then Some (kernel && negb copied) else None in
        let r := match nth i known (None, 0) with (Some c, _) => total c | _ => 0 end in
        Manner m r (kernel && negb (member i feeds || copied))) (combine (seq 0 (length ns)) ns) in
      Some (fun i => nth i list (Manner None 0 false))
  end.
