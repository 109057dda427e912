(* Reads questions of `specgrad check-certificate --proven` from the standard input, answers each by a line:
   "yes" (the theorem check_sound applies, of a graph graph_exact too), "no", or "none" (of a graph: it was not compiled). Trusted, with the extracted code: what is read here is what is proven.

   A question is a list of whole numbers, separated by white space:

   unit            e: roundings are relative to 2^e
   numbers         count, then m e of each: m * 2^e; from here on numbers go by their place in this list
   cells           count, then each; cells are numbered from 1 on in this order. Or -1 and a graph (below), whose cells are
                   numbered node by node, in row-major order, of those nodes that have cells
                     0 low high
                     1 blur roundings spread once, count, then weight source shared of each product; source 0: a constant
                     2 source
                     3 count, then sources
                     4 source, start rise relative absolute, count, then kink turn of each: CheckBend.v says what they are
   slopes          count of tables, then of each: count, then cell, count, below..., count, above...
   vectors         count of tables, then of each: count, then cell, count, relus..., count, cell number ...: CheckPieces.v
   tightened       count of sets, then of each: count, then cell always
   groups          count, then of each: alternatives: count, then rows: count, then count, cell coefficient ..., limit
                   and a plan:
                     0, per alternative: count, weights..., table, count, cell multiplier ..., count, maximum cell multiplier ...,
                       table of vectors
                     1 cell point, plan below, plan above
                     3 maximum cell, plan where they are equal, plan where not
                     2 set table, plan
                     4 plan, plan
   Of a graph a row's cells are places of its output, in row-major order from 0 on.

   graph           count of nodes, then of each: count, sizes..., whether a linear node has cells, and its operator; then the
                   number of the output's node. Nodes are numbered from 0 on. Operators, with lists of numbers in row-major order:
                     0 low..., high...                                1 batch groups cin cout, axes, weights, bias, x: conv
                     2 as 1: conv_transpose                           3 axes, divisor (0: padded, 1: inside, 2 number), x
                     4 axes, x: max_pool                              5 x: relu
                     6 x, start rise relative absolute, count, then kink turn of each
                     7 x y: add       8 x y: sub                      9 numbers, x: mul      10 numbers, x: add
                     11 x: neg        12 letters, of x, of weights, shape of weights, weights, x: contract (Compile.v)
                     13 layout: 0 x: reshape. 1 axes, x: permute. 2 starts, steps, x: slice. 3 lows, number, x: pad.
                        4 x: broadcast. 5 axis, nodes: concat
                   An axis is 0 size kernel stride dilation low high out, or 1 size out (adaptive); a bias 0, or 1 and its numbers. *)
open Extracted

let buffer = Buffer.create 32

(* the next word; End_of_file at the end *)
let word () =
  Buffer.clear buffer;
  let rec skip () = match input_char stdin with ' ' | '\n' -> skip () | c -> c in
  let rec take c = Buffer.add_char buffer c; match input_char stdin with ' ' | '\n' -> () | c -> take c | exception End_of_file -> () in
  take (skip ());
  Buffer.contents buffer

let int () = int_of_string (word ())
let flag () = match int () with 0 -> false | 1 -> true | n -> failwith (Printf.sprintf "a flag is 0 or 1; got %d" n)
let big () = Big.of_string (word ())
let counted read = let n = int () in if n < 0 then failwith "a count is negative" else Array.init n (fun _ -> read ())
let several read = Array.to_list (counted read)

(* Cells get different keys, whichever. Neighbours stand together: the high digits of their numbers come first, as many for all,
   then the low ones, so that a run of cells fills a part of a trie. *)
let low = 64
let rec inner n = if n = 1 then Here else if n land 1 = 0 then Even (inner (n / 2)) else Odd (inner (n / 2))
let key count n =
  let rec outer k bits = if bits = 0 then inner (n mod low + 1) else
    if (k lsr (bits - 1)) land 1 = 0 then Even (outer k (bits - 1)) else Odd (outer k (bits - 1)) in
  let rec width k = if k = 0 then 0 else 1 + width (k / 2) in
  outer (n / low) (width (count / low))
let table entries = Array.fold_left (fun t (k, v) -> put k (Some v) t) Empty entries

(* --- graphs --- *)
let rec nat n = if n = 0 then O else S (nat (n - 1))
let sizes () = several big
let total shape = List.fold_left (fun n s -> n * Big.to_int s) 1 shape
let flat shape p = Big.to_int (ravel shape p)

let graph number =
  let node_count = int () in
  let node i = match int () with x when x >= 0 && x < i -> nat x | x -> failwith (Printf.sprintf "node %d reads node %d" i x) in
  let filled shape = let values = Array.init (total shape) (fun _ -> number ()) in fun p -> values.(flat shape p) in
  let axis () = match int () with
    | 0 ->
        let n = big () in let k = big () in let s = big () in let e = big () in let lo = big () in let hi = big () in let m = big () in
        Strided (n, k, s, e, lo, hi, m)
    | 1 -> let n = big () in let m = big () in Adaptive (n, m)
    | n -> failwith (Printf.sprintf "no kind %d of axes" n) in
  let kernel_of = function Strided (_, k, _, _, _, _, _) -> k | Adaptive (n, _) -> n | Grouped (g, n, _) -> Big.div n g in
  let conv transposed i =
    let batch = big () in let groups = big () in let cin = big () in let cout = big () in let axes = several axis in
    let weights = filled (cout :: Big.div cin groups :: List.map kernel_of axes) in
    let bias = match int () with 0 -> None | _ -> Some (filled [if transposed then cin else cout]) in
    let x = node i in
    if transposed then Transposed (batch, groups, cin, cout, axes, weights, bias, x) else Conv (batch, groups, cin, cout, axes, weights, bias, x) in
  let layout i = match int () with
    | 0 -> Reshaped (node i)
    | 1 -> let axes = several (fun () -> nat (int ())) in Permuted (axes, node i)
    | 2 -> let starts = sizes () in let steps = sizes () in Sliced (starts, steps, node i)
    | 3 -> let lows = sizes () in let c = number () in Padded0 (lows, c, node i)
    | 4 -> Repeated (node i)
    | 5 -> let axis = nat (int ()) in Joined (axis, several (fun () -> node i))
    | n -> failwith (Printf.sprintf "no kind %d of layouts" n) in
  let operator i shape = match int () with
    | 0 -> let low = filled shape in let high = filled shape in Given (low, high)
    | 1 -> conv false i
    | 2 -> conv true i
    | 3 ->
        let axes = several axis in
        let divisor = match int () with 0 -> Padded | 1 -> Inside | 2 -> By (number ()) | n -> failwith (Printf.sprintf "no divisor %d" n) in
        Average (axes, divisor, node i)
    | 4 -> let axes = several axis in Greatest (axes, node i)
    | 5 -> Positive (node i)
    | 6 ->
        let x = node i in let start = number () in let rise = number () in let relative = number () in let absolute = number () in
        let turns = several (fun () -> let kink = number () in let turn = number () in (kink, turn)) in
        Bent ({ start0 = start; rise; turns; relative; absolute }, x)
    | 7 -> let x = node i in Added (x, node i)
    | 8 -> let x = node i in Subtracted (x, node i)
    | 9 -> let c = filled shape in Times (c, node i)
    | 10 -> let c = filled shape in Shifted (c, node i)
    | 11 -> Negated (node i)
    | 12 ->
        let letters = sizes () in let at_x = several (fun () -> nat (int ())) in let at_w = several (fun () -> nat (int ())) in
        let weights = filled (sizes ()) in
        Contracted (letters, at_x, at_w, weights, node i)
    | 13 -> Layout (layout i)
    | n -> failwith (Printf.sprintf "no operator %d" n) in
  let nodes = Array.init node_count (fun i ->
    let shape = sizes () in let celled = flag () in let what = operator i shape in { extents = shape; what; celled }) in
  let out = match int () with n when n >= 0 && n < node_count -> n | n -> failwith (Printf.sprintf "no node %d" n) in
  (nodes, out)

(* The compiled cells, one a line, as they would be written in a question; numbers as m e. Option --cells. *)
let print_cells keys key_of nodes out =
  let numbers = Hashtbl.create 1000 in
  Array.iteri (fun n k -> Hashtbl.replace numbers k n) keys;
  let cell k = string_of_int (Hashtbl.find numbers k) in
  let number n = Big.to_string n.mantissa ^ " " ^ Big.to_string n.exponent in
  let flag b = if b then "1" else "0" in
  let product p = String.concat " " [number p.weight; (match p.source with None -> "0" | Some k -> cell k); flag p.shared] in
  let line (k, c) = cell k :: (match c with
    | Input (low, high) -> ["0"; number low; number high]
    | Sum s -> ["1"; number s.blur; Big.to_string s.roundings; number s.spread; flag s.once; String.concat " " (List.map product s.terms)]
    | Relu k -> ["2"; cell k]
    | Max (k, ks) -> "3" :: List.map cell (k :: ks)
    | Bend (k, _) -> ["4"; cell k]) in
  match manners_of nodes [out] with
  | None -> print_endline "no count"
  | Some manners -> match compile key_of manners nodes [] with
    | None -> print_endline "no cells"
    | Some (net, _) -> List.iter (fun c -> print_endline (String.concat " " (line c))) net

let question unit =
  let numbers = counted (fun () -> let m = big () in let e = big () in { mantissa = m; exponent = e }) in
  let number () = numbers.(int ()) in
  let given = int () in
  let made = if given >= 0 then None else Some (graph number) in
  (* The number of each node's first cell, and how many cells there are. *)
  let has_cells n = n.celled || (match n.what with Given _ | Greatest _ | Positive _ | Bent _ -> true | _ -> false) in
  let firsts, count = match made with
    | None -> ([||], given)
    | Some (nodes, _) ->
        let next = ref 1 in
        let firsts = Array.map (fun n -> let first = !next in if has_cells n then next := first + total n.extents; first) nodes in
        (firsts, !next - 1) in
  let keys = Array.init (count + 1) (fun n -> key count n) in
  let some = Array.map (fun k -> Some k) keys in
  let cell () = match int () with n when n >= 1 && n <= count -> keys.(n) | n -> failwith (Printf.sprintf "no cell %d" n) in
  let source () = match int () with 0 -> None | n when n >= 1 && n <= count -> some.(n) | n -> failwith (Printf.sprintf "no cell %d" n) in
  let product () =
    let weight = number () in let source = source () in let shared = flag () in
    { weight; source; shared } in
  let described n =
    let k = keys.(n + 1) in
    match int () with
    | 0 -> let low = number () in let high = number () in (k, Input (low, high))
    | 1 ->
        let blur = number () in let roundings = big () in let spread = number () in let once = flag () in let terms = several product in
        (k, Sum { terms; blur; roundings; spread; once })
    | 2 -> (k, Relu (cell ()))
    | 3 -> (match several cell with x :: xs -> (k, Max (x, xs)) | [] -> failwith "a maximum of nothing")
    | 4 ->
        let x = cell () in let start = number () in let rise = number () in let relative = number () in let absolute = number () in
        let turns = several (fun () -> let kink = number () in let turn = number () in (kink, turn)) in
        (k, Bend (x, { start0 = start; rise; turns; relative; absolute }))
    | n -> failwith (Printf.sprintf "no kind %d of cells" n) in
  let net = match made with None -> Array.to_list (Array.init count described) | Some _ -> [] in
  let tables = counted (fun () -> table (counted (fun () ->
    let k = cell () in let below = several number in let above = several number in (k, (below, above))))) in
  let pair () = let k = cell () in let c = number () in (k, c) in
  let joints = counted (fun () -> table (counted (fun () ->
    let k = cell () in let relus = several cell in let vector = several pair in (k, { relus; vector })))) in
  let sets = counted (fun () -> table (counted (fun () -> let k = cell () in let always = flag () in (k, always)))) in
  let lead () = let k = cell () in let j = cell () in let b = number () in ((k, j), b) in
  let row () = let coefs = several pair in let limit = number () in { coefs; limit } in
  let placed shape () =
    let rec position n = function [] -> [] | _ :: rest -> let m = total rest in Big.of_int (n / m) :: position (n mod m) rest in
    let place () = let n = int () in let c = number () in if n < 0 || n >= total shape then failwith "no such output"; (position n shape, c) in
    let coefs_at = several place in let bound = number () in { coefs_at; bound } in
  let group row () =
    let alternatives = several (fun () -> several row) in
    let reason _ =
      let weights = several number in let slopes = tables.(int ()) in let pulls = several pair in let leads = several lead in
      let joint = joints.(int ()) in
      { weights; slopes; pulls; leads; joint } in
    let rec plan () = match int () with
      | 0 -> Reasons (List.map reason alternatives)
      | 1 -> let k = cell () in let p = number () in let below = plan () in let above = plan () in Cut (k, p, below, above)
      | 2 -> let set = sets.(int ()) in let lines = tables.(int ()) in Anew (set, lines, plan ())
      | 3 -> let k = cell () in let t = cell () in let yes = plan () in let no = plan () in Win (k, t, yes, no)
      | 4 -> let one = plan () in let other = plan () in Either (one, other)
      | n -> failwith (Printf.sprintf "no kind %d of plans" n) in
    let p = plan () in
    (alternatives, p) in
  let unit = { mantissa = Big.one; exponent = unit } in
  match made with
  | None -> Some (check net unit (several (group row)))
  | Some (nodes, out) ->
      let rec index = function O -> 0 | S n -> 1 + index n in
      let key_of i p = let i = index i in keys.(firsts.(i) + flat nodes.(i).extents p) in
      let groups = several (group (placed nodes.(out).extents)) in
      let nodes = Array.to_list nodes in
      if Array.mem "--cells" Sys.argv then print_cells keys key_of nodes (nat out);
      check_graph key_of nodes (nat out) unit groups

(* Numbers live for a moment: fewer collections than OCaml has by default. *)
let () = Gc.set { (Gc.get ()) with Gc.minor_heap_size = 1 lsl 20; space_overhead = 200 }

let () =
  try
    while true do
      let unit = try big () with End_of_file -> exit 0 in
      print_endline (match question unit with Some true -> "yes" | Some false -> "no" | None -> "none")
    done
  with
  | Failure why | Invalid_argument why -> prerr_endline ("not a question: " ^ why); exit 2
  | End_of_file -> prerr_endline "not a question: it ends early"; exit 2
