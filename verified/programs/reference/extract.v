(** What bin/reference runs: definitions that the theorems are about, over Zarith's rationals (main.ml). *)
From Specgrad Require Import ToZarith Numbers Relation Window Sizes Readers Conv AvgPool MaxPool GlobalPool Graph GraphOperators.
Extraction "extracted.ml" positions ravel strided_axis same_axis transposed_axis adaptive_axis ins outs conv_window weight_shape
  conv conv_jvp conv_vjp_x conv_vjp_w conv_vjp_b
  conv_transpose conv_transpose_jvp conv_transpose_vjp_x conv_transpose_vjp_w conv_transpose_vjp_b
  share avg_pool avg_pool_vjp winner take put global_avg global_max global_max_jvp global_max_vjp maximisers one_cell cell_of mapped
  run run_jvp kept_sweep seeds conv_node conv_transpose_node avg_pool_node max_pool_node linear_node contract_node pointwise_node
  add_node sub_node mul_node.
