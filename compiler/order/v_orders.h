/* The constructors of the schedules on a V. */
#ifndef PP_V_ORDERS_H
#define PP_V_ORDERS_H

#include "order.h"

pp_order_maker pp_v_half_rows, pp_v_min_rows, pp_v_adaptive_rows;

#endif
