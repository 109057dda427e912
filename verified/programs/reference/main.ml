(* Reads questions, one per line, and prints answers: numbers in, numbers out, all mathematics is extracted.

   A question is an operator and fields name=value; tensors are rationals in row-major order, separated by commas.
     conv            batch= groups= cin= cout= axes= x= w= b= dx= dw= db= gy=    values; jvp; cotangents of x, w, b
     conv_transpose  the same; cin and cout are those of its input and output
     avg_pool        lead= axes= divisor=padded|inside|NUMBER x= dx= gy=         values; jvp; cotangent
     max_pool        lead= axes= x= dx= gy=                                      values; winners; jvp; cotangent
     global_avg      lead= sizes= x= dx= gy=                                     values; jvp; cotangent
     global_max      lead= sizes= ties=all|split|first x= dx= gy=                values; jvp; cotangent
   An axis is w:n:k:s:e:lo:hi:ceil (window), u:n:k:s:e or l:n:k:s:e (same padding, upper or lower), a:n:out (adaptive),
   t:n:k:s:e:lo:hi:output_padding (transposed). An answer is "refused", or its parts as shape|numbers, separated by ";".

   Or a whole graph, whose places are its inputs and then its nodes, numbered from 0 on:
     graph           x= dx= gy= out= node= node= ...          values of the outputs; their jvp; cotangents of all inputs
   x and dx are tensors as shape|numbers, separated by ";", one for each input; gy one for each output, whose places out= names.
   A node is written operator|places that it reads|..., and then, separated by "|":
     conv, conv_transpose   batch, groups, cin, cout, axes                   avg_pool, max_pool   mapped sizes, axes, divisor of avg_pool
     linear     shape, and of each cell its cell:weight,..., separated by ";"    add, sub, mul        nothing
     contract   shape, sizes summed over, and of each of both that it reads the indices among these two
     pieces     start, rise, and kink:turn:share,...: start + rise * x + the sum of turn * max(0, x - kink); share: of turn in the slope
                at the kink itself *)
open Extracted

type tensor = Big.t list -> Q.t

let rational = { zero = Q.zero; one = Q.one; add0 = Q.add; mul0 = Q.mul; sub0 = Q.sub; opp0 = Q.neg; div0 = Q.div }
let less x y = Q.lt x y
let split c s = if s = "" then [] else String.split_on_char c s
let join c f l = String.concat c (List.map f l)

exception Refused

(* An array as a function of positions, and a function worked out once at every position of a shape. *)
let table shape cells =
  let cells = Array.of_list cells in
  let wanted = List.fold_left (fun n d -> n * Big.to_int d) 1 shape in
  if Array.length cells <> wanted then failwith "a tensor does not have its shape";
  fun p -> cells.(Big.to_int (ravel shape p))

let worked_out shape f = table shape (List.map f (positions shape))
let numbers shape text : tensor = table shape (List.map Q.of_string (split ',' text))
let show_shape = join "," Big.to_string
let show shape (f : tensor) = show_shape shape ^ "|" ^ join "," Q.to_string (List.map f (positions shape))
let answer parts = String.concat ";" parts

let axis text =
  let accepted = function Some a -> a | None -> raise Refused in
  match split ':' text with
  | kind :: sizes -> (
      match (kind, List.map Big.of_string sizes) with
      | "w", [ n; k; s; e; lo; hi; c ] -> accepted (strided_axis n k s e lo hi (Big.equal c Big.one))
      | "u", [ n; k; s; e ] -> accepted (same_axis n k s e true)
      | "l", [ n; k; s; e ] -> accepted (same_axis n k s e false)
      | "a", [ n; m ] -> accepted (adaptive_axis n m)
      | "t", [ n; k; s; e; lo; hi; more ] -> accepted (transposed_axis n k s e lo hi more)
      | _ -> failwith ("no axis: " ^ text))
  | [] -> failwith "no axis"

let bigs text = List.map Big.of_string (split ',' text)
let axes text = List.map axis (split ',' text)
let divided = function "padded" -> Padded | "inside" -> Inside | d -> By (Q.of_string d)

let convolution get transposed =
  let whole name = Big.of_string (get name) in
  let batch, groups, cin, cout = (whole "batch", whole "groups", whole "cin", whole "cout") in
  let axes = axes (get "axes") in
  (* conv_transpose reads the window of a conv from its output to its input backwards *)
  let cin, cout = if transposed then (cout, cin) else (cin, cout) in
  let w = conv_window batch groups cin cout axes in
  let ins, outs, ws = (List.map size w, List.map out w, weight_shape groups cin cout axes) in
  let xs, ys, bs = if transposed then (outs, ins, [ cin ]) else (ins, outs, [ cout ]) in
  let x, dx, gy = (numbers xs (get "x"), numbers xs (get "dx"), numbers ys (get "gy")) in
  let weights, dw, b, db = (numbers ws (get "w"), numbers ws (get "dw"), numbers bs (get "b"), numbers bs (get "db")) in
  let value, jvp, vjp_x, vjp_w, vjp_b =
    if transposed then
      (conv_transpose, conv_transpose_jvp, conv_transpose_vjp_x, conv_transpose_vjp_w, conv_transpose_vjp_b)
    else (conv, conv_jvp, conv_vjp_x, conv_vjp_w, conv_vjp_b)
  in
  let at f = f rational batch groups cin cout axes in
  answer
    [
      show ys (at value weights b x);
      show ys (at jvp weights x dw db dx);
      show xs (at vjp_x weights gy);
      show ws (at vjp_w x gy);
      show bs (at vjp_b gy);
    ]

let pool get f =
  let w = mapped (Big.of_string (get "lead")) :: axes (get "axes") in
  let ins, outs = (List.map size w, List.map out w) in
  f w ins outs (numbers ins (get "x")) (numbers ins (get "dx")) (numbers outs (get "gy"))

let average w part ins outs x dx gy =
  let part = worked_out outs part in
  answer
    [ show outs (avg_pool rational part w x); show outs (avg_pool rational part w dx); show ins (avg_pool_vjp rational part w gy) ]

let maximum w ins outs x dx gy =
  let win = worked_out outs (winner less w x) in
  let flat o = match win o with None -> Big.minus_one | Some i -> ravel (List.tl ins) (List.tl i) in
  let index = show_shape outs ^ "|" ^ join "," (fun o -> Big.to_string (flat o)) (positions outs) in
  let gx = put rational (positions outs) win gy in
  answer [ show outs (take rational win x); index; show outs (take rational win dx); show ins gx ]

let over_all get f =
  let lead, sizes = (Big.of_string (get "lead"), bigs (get "sizes")) in
  List.iter (fun n -> if Big.sign n <= 0 then raise Refused) sizes;
  let ins = lead :: sizes in
  f lead sizes ins (numbers ins (get "x")) (numbers ins (get "dx")) (numbers [ lead ] (get "gy"))

let one_each lead (f : Big.t -> Q.t) : tensor = worked_out [ lead ] (fun p -> f (List.hd p))

let solve operator get =
  match operator with
  | "conv" -> convolution get false
  | "conv_transpose" -> convolution get true
  | "avg_pool" ->
      pool get (fun w -> average w (share rational (divided (get "divisor")) w))
  | "max_pool" -> pool get maximum
  | "global_avg" ->
      over_all get (fun lead sizes ins x dx gy ->
          let mean x = one_each lead (global_avg rational sizes x) in
          let w = one_cell lead sizes in
          let outs = List.map out w in
          let spread p = gy [ List.hd p ] in
          let part = worked_out outs (share rational Inside w) in
          answer [ show [ lead ] (mean x); show [ lead ] (mean dx); show ins (avg_pool_vjp rational part w spread) ])
  | "global_max" ->
      over_all get (fun lead sizes ins x dx gy ->
          match get "ties" with
          | "first" ->
              let w = one_cell lead sizes in
              let win = worked_out (List.map out w) (winner less w x) in
              let at x p = take rational win x (cell_of (List.hd p) sizes) in
              let gx = put rational (positions (List.map out w)) win (fun o -> gy [ List.hd o ]) in
              answer [ show [ lead ] (at x); show [ lead ] (at dx); show ins gx ]
          | ("all" | "split") as name ->
              let rule = if name = "all" then All else Split in
              let m = one_each lead (global_max rational less sizes x) in
              let greatest b = m [ b ] in
              let counts = worked_out [ lead ] (fun p -> length (maximisers less sizes x (m p) (List.hd p))) in
              let jvp = one_each lead (global_max_jvp rational less sizes rule x greatest dx) in
              let vjp = global_max_vjp rational less lead sizes rule x greatest (fun b -> counts [ b ]) (fun b -> gy [ b ]) in
              answer [ show [ lead ] m; show [ lead ] jvp; show ins vjp ]
          | other -> failwith ("no tie rule: " ^ other))
  | other -> failwith ("no operator: " ^ other)

(* --- graphs --- *)
let rec nat n = if n = 0 then O else S (nat (n - 1))
let rec whole = function O -> 0 | S n -> 1 + whole n

(* The same function, which remembers what it has given. *)
let remembering key f =
  let known = Hashtbl.create 64 in
  fun p ->
    let k = key p in
    match Hashtbl.find_opt known k with
    | Some v -> v
    | None -> let v = f p in Hashtbl.add known k v; v

let kept_tensor (f : tensor) : tensor = remembering (List.map Big.to_int) f
let kept (all : nat -> tensor) = remembering whole (fun j -> kept_tensor (all j))
let kept_values op = { op with value = (fun x -> kept_tensor (op.value x)); jvp = (fun x dx -> kept_tensor (op.jvp x dx)) }

let given text =
  let one t = match split '|' t with
    | [ shape; cells ] -> (bigs shape, numbers (bigs shape) cells)
    | _ -> failwith ("no tensor: " ^ t) in
  List.map one (split ';' text)

let pieces start rise turns =
  let turns = List.map (fun t -> match List.map Q.of_string (split ':' t) with
    | [ kink; turn; share ] -> (kink, turn, share)
    | _ -> failwith ("no turn: " ^ t)) turns in
  let summed first part = List.fold_left (fun s t -> Q.add s (part t)) first turns in
  let value x = summed (Q.add start (Q.mul rise x)) (fun (kink, turn, _) -> Q.mul turn (Q.max Q.zero (Q.sub x kink))) in
  let slope x = summed rise (fun (kink, turn, share) ->
    if Q.lt kink x then turn else if Q.equal kink x then Q.mul share turn else Q.zero) in
  (value, slope)

(* Each output cell adds up cells that it lists. *)
let listed ins shape text =
  let cells = Array.of_list (positions ins) in
  let tap t = match split ':' t with
    | [ cell; weight ] -> (cells.(int_of_string cell), Q.of_string weight)
    | _ -> failwith ("no tap: " ^ t) in
  let rows = Array.of_list (List.map (fun row -> Array.of_list (List.map tap (split ',' row))) (String.split_on_char ';' text)) in
  let row o = rows.(Big.to_int (ravel shape o)) in
  let most = Array.fold_left (fun n row -> max n (Array.length row)) 0 rows in
  let reads o t = if t < Array.length (row o) then Some (fst (row o).(t)) else None in
  linear_node rational (positions shape) (List.init most Fun.id) reads (fun o t -> snd (row o).(t))

(* Operator and shape of a node that reads tensors of the shapes `ins`. *)
let operator_of ins = function
  | ("conv" | "conv_transpose") as name, [ batch; groups; cin; cout; sizes ] ->
      let batch, groups, cin, cout = (Big.of_string batch, Big.of_string groups, Big.of_string cin, Big.of_string cout) in
      let transposed = name = "conv_transpose" in
      let cin, cout = if transposed then (cout, cin) else (cin, cout) in
      let window = conv_window batch groups cin cout (axes sizes) in
      let node = if transposed then conv_transpose_node else conv_node in
      (node rational batch groups cin cout (axes sizes), List.map (if transposed then size else out) window)
  | "avg_pool", [ leads; sizes; divisor ] ->
      let w = List.map mapped (bigs leads) @ axes sizes in
      (avg_pool_node rational (divided divisor) w, List.map out w)
  | "max_pool", [ leads; sizes ] ->
      let w = List.map mapped (bigs leads) @ axes sizes in
      (max_pool_node rational less w, List.map out w)
  | "linear", [ shape; cells ] -> (listed (List.hd ins) (bigs shape) cells, bigs shape)
  | "contract", [ shape; summed; one; other ] ->
      let at indices = let indices = List.map int_of_string (split ',' indices) in
        fun o t -> let both = Array.of_list (o @ t) in Some (List.map (fun i -> both.(i)) indices) in
      let shape = bigs shape in
      (contract_node rational (positions shape) (positions (bigs summed)) (at one) (at other), shape)
  | "pieces", [ start; rise; turns ] ->
      let f, slope = pieces (Q.of_string start) (Q.of_string rise) (split ',' turns) in
      (pointwise_node rational f slope, List.hd ins)
  | "add", [] -> (add_node rational, List.hd ins)
  | "sub", [] -> (sub_node rational, List.hd ins)
  | "mul", [] -> (mul_node rational, List.hd ins)
  | name, _ -> failwith ("no node: " ^ name)

let whole_graph fields =
  let get name = try List.assoc name fields with Not_found -> failwith ("missing: " ^ name) in
  let x, dx, gy = (given (get "x"), given (get "dx"), given (get "gy")) in
  let add (shapes, nodes) text =
    match split '|' text with
    | name :: args :: rest ->
        let args = List.map int_of_string (split ',' args) in
        let op, shape = operator_of (List.map (List.nth shapes) args) (name, rest) in
        (shapes @ [ shape ], { op = kept_values op; args = List.map nat args; place0 = nat (List.length shapes) } :: nodes)
    | _ -> failwith ("no node: " ^ text) in
  let texts = List.filter_map (fun (name, text) -> if name = "node" then Some text else None) fields in
  let shapes, nodes = List.fold_left add (List.map fst x, []) texts in
  let g, outputs = (List.rev nodes, List.map int_of_string (split ',' (get "out"))) in
  let from tensors j = snd (List.nth tensors (whole j)) in
  if List.map fst dx <> List.map fst x || List.map fst gy <> List.map (List.nth shapes) outputs then
    failwith "a tangent or a cotangent has another shape";
  let values, tangents = (run g (from x), run_jvp g (from x) (from dx)) in
  let swept = kept_sweep rational kept g (from x) (seeds rational (List.map nat outputs) (from gy)) in
  let shown f j = show (List.nth shapes j) (f (nat j)) in
  answer (List.map (shown values) outputs @ List.map (shown tangents) outputs @ List.mapi (fun j _ -> shown swept j) x)

let field text =
  match String.index_opt text '=' with
  | Some i -> (String.sub text 0 i, String.sub text (i + 1) (String.length text - i - 1))
  | None -> failwith ("no field: " ^ text)

let reply line =
  match split ' ' line with
  | operator :: fields -> (
      let fields = List.map field fields in
      let get name = try List.assoc name fields with Not_found -> failwith ("missing: " ^ name) in
      try if operator = "graph" then whole_graph fields else solve operator get with Refused -> "refused")
  | [] -> failwith "an empty line"

let () =
  try
    while true do
      let line = input_line stdin in
      print_endline (try reply line with Failure why | Invalid_argument why -> "error: " ^ why)
    done
  with End_of_file -> ()
