/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that this library does not use, as errors. Included by the build into every
 * source of src/, after the system headers that declare them. */
#ifndef STI_BASE_BANNED_H
#define STI_BASE_BANNED_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#pragma GCC poison strcpy strcat strncpy strtok sprintf vsprintf gets atoi atol atoll strerror
#pragma GCC poison localtime gmtime rand srand system getenv setenv sleep usleep

#endif
