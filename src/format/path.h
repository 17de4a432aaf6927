/* SPDX-License-Identifier: Apache-2.0 */
/* Paths as text. */
#ifndef STI_FORMAT_PATH_H
#define STI_FORMAT_PATH_H

/* directory/name, or name where directory is "". Returns owned, NULL without memory. */
char *
sti_path_join(const char *directory, const char *name);

/* The directory that a path's last part lies in, "." where there is none before it;
 * trailing slashes do not count. Returns owned, NULL without memory. */
char *
sti_path_directory(const char *path);

/* The last part of a path without trailing slashes. Returns owned, NULL without
 * memory. */
char *
sti_path_name(const char *path);

#endif
