/* SPDX-License-Identifier: Apache-2.0 */
/* Where in its machine this process runs. */
#ifndef STI_CHECKPOINTER_PLACE_H
#define STI_CHECKPOINTER_PLACE_H

#include <stdint.h>

#define STI_PLACE_SOCKETS_MAX 256u

/*
 * The socket (physical package) whose processors this process may use, as Linux counts them;
 * 0 where it may use several sockets' or where the system does not tell. Reads sysfs; any
 * thread.
 */
uint32_t
sti_place_socket(void);

#endif
