/* SPDX-License-Identifier: Apache-2.0 */
/* Everything public, in the order in which it is best read. */
#ifndef STOKER_STOKER_H
#define STOKER_STOKER_H

#include <stoker/types.h>
#include <stoker/plan.h>
#include <stoker/simulate.h>
#include <stoker/comm.h>
#include <stoker/engine.h>
#include <stoker/loader.h>
#include <stoker/checkpoint.h>
#include <stoker/file.h>
#include <stoker/cost.h>

#endif
