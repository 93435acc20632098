-- What PyTorch 2.11.0 gives; made by bench/peers/view_cases.py.
return {
  write_before_a_view = {
    y = {4.5, 12, 15, 13.5},
    v = {12, 15},
    x = {0, 22.5, 30, 0},
  },
  write_after_a_view = {
    y = {4.5, 12, 15, 13.5},
    v = {12, 15},
    x = {0, 22.5, 30, 0},
  },
  squared_then_viewed = {
    v = {16, 25},
    x = {0, 60, 100, 0},
  },
  squared_in_place = {
    refused = "one of the variables needed for gradient computation has been modified by an inp",
  },
  write_through_a_view = {
    y = {1.5, 7, 15, 4.5},
    x = {7.5, 17.5, 33, 10.5},
    w = {20, 27.5},
  },
  write_through_a_view_read_from_it = {
    v = {7, 15},
    x = {0, 13.125, 30, 0},
    w = {15, 25},
  },
  chain_of_views = {
    y = {1.5, 4, 5, 4.5, 5, 8.25, 12, 10, 9.5, 10, 11.5, 14},
    x = {7.5, 10, 11, 10.5, 11, 12.5, 15, 16, 15.5, 16, 17.5, 20},
    w = {6.25, 7.5},
  },
  chain_of_views_base_written = {
    u = {19.5, 27},
    x = {0, 0, 0, 0, 0, 22.5, 30, 0, 0, 0, 0, 0},
    w = {0, 69.375, 0},
  },
  chain_of_views_middle_written = {
    u = {19.5, 31.5},
    y = {1.5, 4, 5, 4.5, 8.75, 19.5, 31.5, 32.5, 9.5, 10, 11.5, 14},
    x = {0, 0, 0, 0, 0, 22.5, 35, 0, 0, 0, 0, 0},
    w = {0, 24.375, 45, 0},
  },
  three_views_deep = {
    y = {1.5, 4, 5, 4.5, 5, 11.375, 9, 10, 9.5, 30, 11.5, 14},
    x = {7.5, 10, 11, 10.5, 11, 21.875, 15, 16, 15.5, 48, 17.5, 20},
    w = {40.625, 80},
  },
  overlapping_siblings = {
    b = {17.5, 4.5, 5},
    x = {0, 0, 26.25, 10, 11},
    w = {0, 0, 18.75},
  },
  overlapping_siblings_both_written = {
    a = {2.625, 12, 30.625},
    b = {30.625, 13.5, 17.5},
    y = {2.625, 12, 30.625, 13.5, 17.5},
    x = {13.125, 30, 67.375, 31.5, 38.5},
    w = {101.875, 43.625, 75.625},
  },
  transpose_written = {
    y = {2.625, 12, 17.5, 7.875, 15, 22.75},
    x = {13.125, 30, 38.5, 18.375, 33, 43.75},
    w = {29.25, 47.5, 68.125},
  },
  transpose_seen_after_a_write = {
    t = {1.5, 7.875, 4, 15, 5, 22.75},
    x = {7.5, 11, 11, 17.5, 31.5, 43.75},
    w = {22.5, 26.25, 40.625},
  },
  permuted_part_written = {
    y = {1.5, 5.75, 5, 7.5, 5, 10, 9, 13.25, 9.5, 13.5, 11.5, 18.25},
    x = {7.5, 10, 11, 10.5, 11, 12.5, 15, 16, 15.5, 16, 17.5, 20},
    w = {5, 5.25, 6.25, 8, 8, 10},
  },
  reshaped_view_written = {
    y = {1.5, 4, 5, 7.875, 15, 22.75},
    x = {7.5, 10, 11, 18.375, 33, 43.75},
    w = {23.625, 27.5, 40.625},
  },
  reshaped_copy_written = {
    y = {1.5, 4, 5, 4.5, 5, 6.5},
    c = {1.125, 9, 10, 11.25, 12.5, 21.125},
    x = {7.5, 10, 11, 10.5, 11, 12.5},
  },
  diagonal_written = {
    y = {2.625, 4, 5, 4.5, 15, 6.5, 9, 10, 33.25},
    x = {13.125, 10, 11, 10.5, 33, 12.5, 15, 16, 54.25},
    w = {5.625, 27.5, 73.625},
  },
  unsqueezed_view_written = {
    y = {1.5, 7, 8.75},
    x = {7.5, 17.5, 19.25},
    w = {47.5},
  },
  slice_assigned = {
    y = {1.5, 4, 5, 4.5, 1.75, 3, 3.5, 3.25, 3.5, 4.25, 5.5, 6},
    x = {7.5, 10, 11, 10.5, 0, 0, 0, 0, 0, 0, 0, 0},
    w = {5.5, 6.25, 7.5, 8, 7.75, 8, 8.75, 10},
  },
  slice_assigned_broadcast = {
    y = {1.5, 4, 5, 4.5, 1.75, 3, 3.5, 3.25, 1.75, 3, 3.5, 3.25},
    x = {7.5, 10, 11, 10.5, 0, 0, 0, 0, 0, 0, 0, 0},
    w = {13.25, 14.25, 16.25, 18},
  },
  slice_assigned_a_number = {
    y = {5, 5, 5, 5, 5, 6.5, 9, 10, 9.5, 10, 11.5, 14},
    x = {0, 0, 0, 0, 11, 12.5, 15, 16, 15.5, 16, 17.5, 20},
  },
  column_assigned = {
    y = {1.5, 1.75, 5, 4.5, 5, 3, 9, 10, 9.5, 3.5, 11.5, 14},
    x = {7.5, 0, 11, 10.5, 11, 0, 15, 16, 15.5, 0, 17.5, 20},
    w = {5, 6.25, 8},
  },
  steps_assigned = {
    y = {3.0625, 4, 9, 4.5, 12.25},
    x = {0, 10, 0, 10.5, 0},
    w = {13.125, 33, 38.5},
  },
  element_assigned = {
    y = {1.5, 4, 5, 4.5, 5, 6.5, 5.25, 10, 9.5, 10, 11.5, 14},
    x = {7.5, 10, 11, 10.5, 11, 12.5, 0, 16, 15.5, 16, 17.5, 20},
    w = {22.5, 13.125},
  },
  mask_assigned_a_number = {
    y = {1.5, 1, 1, 1, 1, 1},
    x = {7.5, 0, 0, 0, 0, 0},
  },
  mask_assigned_a_tensor = {
    y = {1.75, 4, 5, 3},
    x = {0, 10, 11, 0},
    w = {3.75, 5.25},
  },
  positions_assigned = {
    y = {3.5, 3.25, 5, 4.5, 5, 6.5, 1.75, 3},
    x = {0, 0, 11, 10.5, 11, 12.5, 0, 0},
    w = {7.5, 8, 3.75, 5},
  },
  slice_assigned_from_the_same_tensor = {
    y = {5, 4.5, 5, 4.5},
    x = {0, 0, 18.5, 20.5},
  },
  filled = {
    y = {1.5, 4, 3, 3, 0, 0},
    x = {7.5, 10, 0, 0, 0, 0},
  },
  all_copied_over = {
    v = {1.75, 3},
    x = {0, 0, 0, 0},
    w = {3.75, 5, 0, 0},
  },
  base_gets_a_history = {
    z = {0, 0.75, 2, 0},
    x = {5, 5.5},
  },
  older_view_gets_a_history = {
    v = {0, 0.75},
    x = {5, 0},
  },
  sum_taken_before_a_write = {
    y = {2.625, 12, 5, 4.5},
    x = {52.125, 69, 50, 49.5},
    w = {5.625, 20},
  },
  two_views_after_a_write = {
    u = {3.25, 7, 8.5},
    v = {6.25, 8, 10},
    x = {46.875, 80, 110, 24.375, 70, 93.5},
    w = {35.625, 75, 101.75},
  },
  no_grad_write_to_a_leaf = {
    value = {0.75, 20, 25, 2.25},
    x = {5.625, 200, 275, 23.625},
  },
  no_grad_write_to_a_base = {
    v = {4.5, 12},
    x = {7.5, 10, 0, 0},
  },
  detached_shares = {
    y = {1.5, 12, 15, 4.5},
    x = {7.5, 10, 11, 10.5},
  },
  detached_write_to_what_is_saved = {
    refused = "one of the variables needed for gradient computation has been modified by an inp",
  },
  saved_changed = {
    refused = "one of the variables needed for gradient computation has been modified by an inp",
  },
  saved_changed_through_a_view = {
    refused = "one of the variables needed for gradient computation has been modified by an inp",
  },
  factor_of_a_write_changed = {
    refused = "one of the variables needed for gradient computation has been modified by an inp",
  },
  leaf_written = {
    refused = "a view of a leaf Variable that requires grad is being used in an in-place operat",
  },
  view_of_a_leaf_written = {
    refused = "a view of a leaf Variable that requires grad is being used in an in-place operat",
  },
  expanded_view_written = {
    refused = "unsupported operation: more than one element of the written-to tensor refers to ",
  },
  view_made_without_gradients_written = {
    refused = "A view was created in no_grad mode and is being modified inplace with grad mode ",
  },
  selected_part_written = {
    y = {2.625, 12, 17.5, 4.5, 5, 6.5},
    x = {13.125, 30, 38.5, 10.5, 11, 12.5},
    w = {5.625, 20, 27.5},
  },
  unbound_views_written = {
    refused = "Output 0 of UnbindBackward0 is a view and is being modified inplace. This view i",
  },
  half_written = {
    y = {1.5, 4, 8.75, 13.5},
    x = {7.5, 10, 19.25, 31.5},
    w = {27.5, 23.625},
  },
  split_views_written = {
    refused = "Output 1 of SplitBackward0 is a view and is being modified inplace. This view is",
  },
  second_gradient_through_a_view = {
    g = {1.6875, 98, 562.5, 45.5625},
    x = {25.3125, 735, 3712.5, 318.9375},
    w = {560, 2062.5},
  },
  view_made_without_gradients_changed = {
    refused = "A view was created in no_grad mode and is being modified inplace with grad mode ",
  },
  view_of_a_view_made_without_gradients_changed = {
    refused = "Output 0 of SliceBackward0 is a view of a view which was created in no_grad mode",
  },
  view_of_a_leaf_made_without_gradients_changed = {
    value = {2.25, 6, 2.5, 2.25},
    v = {2.25, 6},
    x = {16.875, 60, 27.5, 23.625},
  },
  zeroed = {
    y = {0, 0, 0, 0},
    x = {0, 0, 0, 0},
  },
  older_view_asked_for_gradients = {
    v = {1.5, 2.625, 12},
    x = {25, 33, 0},
    w = {7.5, 22},
  },
  older_views_of_two_bases_asked_for_gradients = {
    g = {36.75, 171.28125, 126, 0},
    x = {91.875, 415.40625, 315, 0},
    w = {236.25, 1055.90625, 423, 0},
  },
  gradients_of_a_result_leave_what_made_it = {
    g = {1.125, 8, 12.5, 10.125},
    x = {5.625, 20, 27.5, 23.625},
  },
  gradients_of_a_result_need_not_what_made_it = {
    g = {2.25, 16, 25, 20.25},
  },
  retained_before_a_write = {
    x = {45, 160, 220, 189},
    y = {7.5, 10, 11, 10.5},
  },
  retained_of_a_view_before_a_write = {
    x = {0, 22.5, 35, 0},
    v = {3.75, 5},
  },
  retained_adds_up = {
    x = {36, 116, 162, 138},
    y = {18, 58, 81, 69},
  },
  frozen_after_it_was_used = {
    x = false,
    w = {2.8125, 10, 13.75, 11.8125},
  },
}
