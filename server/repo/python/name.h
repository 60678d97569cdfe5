/* name.h - names of Python projects and extras (PEP 503, 508), and the blanks around them.
 *
 * owns     nothing: results are in the given arena
 * threads  any; pure
 */
#ifndef SERVER_REPO_PYTHON_NAME_H
#define SERVER_REPO_PYTHON_NAME_H

#include "common/base/arena.h"

enum { PYNAME_MAX = 200 };

/* Letters, digits, and between them '-', '_', '.'; bounded in length. */
bool pyname_valid(struct slice name);
/* The ASCII characters that Python's str.strip() removes; and a text without them at both ends. */
bool py_is_blank(char c);
struct slice pystrip(struct slice s);
/* Lower case, with runs of '-', '_', '.' as one '-'. Accepts any text. */
struct slice pyname_normal(struct slice name, struct arena *a);

#endif
