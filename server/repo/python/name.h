/* name.h - names of Python projects and extras (PEP 503, 508), and the blanks around them.
 *
 * owns     made in the arena that is given
 * threads  any; pure
 */
#ifndef SERVER_REPO_PYTHON_NAME_H
#define SERVER_REPO_PYTHON_NAME_H

#include "common/base/arena.h"

enum { PYNAME_MAX = 200 };

/* Letters, digits, and between them '-', '_', '.'; not too long. */
bool pyname_valid(struct slice name);
/* What Python's str.strip() takes off, of ASCII; and without it at both ends. */
bool py_is_blank(char c);
struct slice pystrip(struct slice s);
/* Small letters, runs of '-', '_', '.' as one '-'. Of any text. */
struct slice pyname_normal(struct slice name, struct arena *a);

#endif
