(* Reads questions, one per line, and prints answers: numbers in, numbers out, all mathematics is extracted.

   A question is an operator and fields name=value; tensors are rationals in row-major order, separated by commas.
     conv            batch= groups= cin= cout= axes= x= w= b= dx= dw= db= gy=    values; jvp; cotangents of x, w, b
     conv_transpose  the same; cin and cout are those of its input and output
     avg_pool        lead= axes= divisor=padded|inside|NUMBER x= dx= gy=         values; jvp; cotangent
     max_pool        lead= axes= x= dx= gy=                                      values; winners; jvp; cotangent
     global_avg      lead= sizes= x= dx= gy=                                     values; jvp; cotangent
     global_max      lead= sizes= ties=all|split|first x= dx= gy=                values; jvp; cotangent
   An axis is w:n:k:s:e:lo:hi:ceil (window), u:n:k:s:e or l:n:k:s:e (same padding, upper or lower), a:n:out (adaptive),
   t:n:k:s:e:lo:hi:output_padding (transposed). An answer is "refused", or its parts as shape|numbers, separated by ";". *)
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

let convolution get transposed =
  let whole name = Big.of_string (get name) in
  let batch, groups, cin, cout = (whole "batch", whole "groups", whole "cin", whole "cout") in
  let axes = List.map axis (split ',' (get "axes")) in
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
  let w = mapped (Big.of_string (get "lead")) :: List.map axis (split ',' (get "axes")) in
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
  let lead, sizes = (Big.of_string (get "lead"), List.map Big.of_string (split ',' (get "sizes"))) in
  List.iter (fun n -> if Big.sign n <= 0 then raise Refused) sizes;
  let ins = lead :: sizes in
  f lead sizes ins (numbers ins (get "x")) (numbers ins (get "dx")) (numbers [ lead ] (get "gy"))

let one_each lead (f : Big.t -> Q.t) : tensor = worked_out [ lead ] (fun p -> f (List.hd p))

let solve operator get =
  match operator with
  | "conv" -> convolution get false
  | "conv_transpose" -> convolution get true
  | "avg_pool" ->
      pool get (fun w ->
          let divisor =
            match get "divisor" with "padded" -> Padded | "inside" -> Inside | d -> By (Q.of_string d)
          in
          average w (share rational divisor w))
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

let field text =
  match String.index_opt text '=' with
  | Some i -> (String.sub text 0 i, String.sub text (i + 1) (String.length text - i - 1))
  | None -> failwith ("no field: " ^ text)

let reply line =
  match split ' ' line with
  | operator :: fields -> (
      let fields = List.map field fields in
      let get name = try List.assoc name fields with Not_found -> failwith ("missing: " ^ name) in
      try solve operator get with Refused -> "refused")
  | [] -> failwith "an empty line"

let () =
  try
    while true do
      let line = input_line stdin in
      print_endline (try reply line with Failure why | Invalid_argument why -> "error: " ^ why)
    done
  with End_of_file -> ()
