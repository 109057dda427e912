(* Reads questions of `specgrad check-certificate --proven` from the standard input, answers each by a line:
   "yes" (the theorem check_sound applies), or "no". Trusted, with the extracted code: what is read here is what is proven.

   A question is a list of whole numbers, separated by white space:

   unit            e: roundings are relative to 2^e
   numbers         count, then m e of each: m * 2^e; from here on numbers go by their place in this list
   cells           count, then each; cells are numbered from 1 on in this order
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
                     4 plan, plan *)
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

let question unit =
  let numbers = counted (fun () -> let m = big () in let e = big () in { mantissa = m; exponent = e }) in
  let number () = numbers.(int ()) in
  let count = int () in
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
        (k, Bend (x, { start; rise; turns; relative; absolute }))
    | n -> failwith (Printf.sprintf "no kind %d of cells" n) in
  let net = Array.to_list (Array.init count described) in
  let tables = counted (fun () -> table (counted (fun () ->
    let k = cell () in let below = several number in let above = several number in (k, (below, above))))) in
  let pair () = let k = cell () in let c = number () in (k, c) in
  let joints = counted (fun () -> table (counted (fun () ->
    let k = cell () in let relus = several cell in let vector = several pair in (k, { relus; vector })))) in
  let sets = counted (fun () -> table (counted (fun () -> let k = cell () in let always = flag () in (k, always)))) in
  let lead () = let k = cell () in let j = cell () in let b = number () in ((k, j), b) in
  let row () = let coefs = several pair in let limit = number () in { coefs; limit } in
  let group () =
    let alternatives = several (fun () -> several row) in
    let reason _ =
      let weights = several number in let slopes = tables.(int ()) in let pulls = several pair in let leads = several lead in
      let joint = joints.(int ()) in
      { weights; slopes; pulls; leads; joint } in
    let rec plan () = match int () with
      | 0 -> Leaf (List.map reason alternatives)
      | 1 -> let k = cell () in let p = number () in let below = plan () in let above = plan () in Cut (k, p, below, above)
      | 2 -> let set = sets.(int ()) in let lines = tables.(int ()) in Anew (set, lines, plan ())
      | 3 -> let k = cell () in let t = cell () in let yes = plan () in let no = plan () in Win (k, t, yes, no)
      | 4 -> let one = plan () in let other = plan () in Either (one, other)
      | n -> failwith (Printf.sprintf "no kind %d of plans" n) in
    let p = plan () in
    (alternatives, p) in
  let groups = several group in
  check net { mantissa = Big.one; exponent = unit } groups

(* Numbers live for a moment: fewer collections than OCaml has by default. *)
let () = Gc.set { (Gc.get ()) with Gc.minor_heap_size = 1 lsl 20; space_overhead = 200 }

let () =
  try
    while true do
      let unit = try big () with End_of_file -> exit 0 in
      print_endline (if question unit then "yes" else "no")
    done
  with
  | Failure why | Invalid_argument why -> prerr_endline ("not a question: " ^ why); exit 2
  | End_of_file -> prerr_endline "not a question: it ends early"; exit 2
