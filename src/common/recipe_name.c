/*-------------------------------------------------------------------------
 *
 * recipe_name.c
 *	  Checks names of locks and roots, and makes paths of them.
 *
 *-------------------------------------------------------------------------
 */
#include "recipe.h"

#include <stdio.h>
#include <string.h>

#include "foreign.h"

static bool is_list(const char *name);
static RecipeNameError check_components(const char *path, size_t start,
										size_t *offset);
static RecipeNameError check_component(const char *component, size_t size,
									   size_t *offset);
static bool is_like_queue_node(const char *component, size_t size,
							   bool is_of_root);
static RecipeNameError check_characters(const char *component, size_t size,
										size_t *offset);

RecipeNameError
recipe_check_name(const char *name, size_t *offset)
{
	*offset = 0;
	if (name[0] == '\0')
		return RECIPE_NAME_EMPTY;
	if (is_list(name))
		return RECIPE_NAME_LIST;
	if (strlen(name) > RECIPE_NAME_MAX)
		return RECIPE_NAME_TOO_LONG;
	return check_components(name, 0, offset);
}

bool
recipe_is_root(const char *root)
{
	size_t		offset;

	if (root[0] != '/' || strlen(root) > RECIPE_ROOT_MAX)
		return false;
	if (root[1] == '\0')
		return true;
	return check_components(root, 1, &offset) == RECIPE_NAME_OK &&
		strcmp(root, "/zookeeper") != 0 &&
		strncmp(root, "/zookeeper/", strlen("/zookeeper/")) != 0;
}

bool
recipe_lock_path(char *path, const char *root, const char *name)
{
	int			length = snprintf(path, RECIPE_PATH_SIZE, "%s/%s",
								  strcmp(root, "/") == 0 ? "" : root, name);

	if (length >= 0 && length + 1 + RECIPE_NODE_SIZE <= RECIPE_PATH_SIZE)
		return true;
	path[0] = '\0';
	return false;
}

/*
 * Is the name the text of a list: braces around all of it, as PostgreSQL writes
 * an array, or brackets, as JSON, Ruby and Python write one?  Several drivers
 * send a list as such a text where PostgreSQL has not told them the type of a
 * parameter.  It would be the name of one lock, which nobody meant.  The brace
 * or bracket that begins the name has to be closed by its last byte, so
 * "{a}/{b}" is a name.  Those within double quotes do not count, nor does what
 * a backslash protects.
 */
static bool
is_list(const char *name)
{
	char		open = name[0];
	char		close = open == '{' ? '}' : ']';
	int			depth = 0;
	bool		is_quoted = false;

	if (open != '{' && open != '[')
		return false;
	for (const char *c = name; *c != '\0'; c++)
	{
		if (*c == '\\' && c[1] != '\0')
			c++;
		else if (*c == '"')
			is_quoted = !is_quoted;
		else if (is_quoted)
			continue;
		else if (*c == open)
			depth++;
		else if (*c == close && --depth == 0)
			return c[1] == '\0';
	}
	return false;
}

/*
 * Check the components of a path from byte `start` on.  *offset is set as in
 * recipe_check_name(), relative to the whole path.
 */
static RecipeNameError
check_components(const char *path, size_t start, size_t *offset)
{
	const bool	is_root = start > 0;

	for (int depth = 1;; depth++)
	{
		size_t		size = strcspn(path + start, "/");
		RecipeNameError error = check_component(path + start, size, offset);

		if (error == RECIPE_NAME_OK && (depth > 1 || !is_root) &&
			is_like_queue_node(path + start, size, is_root))
			error = RECIPE_NAME_LIKE_QUEUE_NODE;
		if (error == RECIPE_NAME_OK && depth > RECIPE_DEPTH_MAX)
			error = RECIPE_NAME_TOO_DEEP;
		*offset += start;
		if (error != RECIPE_NAME_OK)
			return error;

		start += size;
		if (path[start] == '\0')
			return RECIPE_NAME_OK;
		start++;				/* the slash */
	}
}

/*
 * Check one component of `size` bytes.  *offset is set to the character that
 * is refused, relative to the component, or to 0.
 */
static RecipeNameError
check_component(const char *component, size_t size, size_t *offset)
{
	*offset = 0;
	if (size == 0)
		return RECIPE_NAME_EMPTY_COMPONENT;
	if ((size == 1 && component[0] == '.') ||
		(size == 2 && component[0] == '.' && component[1] == '.'))
		return RECIPE_NAME_DOTS;
	return check_characters(component, size, offset);
}

/*
 * Must this component not be called so, because its znode would be taken for a
 * contender?
 *
 * The znode of each component of a name is a child of the root or of another
 * name's znode.  That name may be a lock, too; so may the root, for whoever has
 * a shorter one: where a role may set its root, it may choose the znode of
 * another root's lock.  The children of a lock are its contenders, and a child
 * that ends in a sequence number looks like one.  (The first component of a root
 * is a child of "/", which is no lock.)  zklock reads such a child, and the znode
 * tells (nested.c).  So a name may end in any number: 'orders/' || id.  Other
 * clients go by the name alone.  What bears the mark of one of them is refused,
 * whatever its number, lest it be refused for great ones only.
 *
 * Such names are not escaped.  For all clients the path of a lock's znode is
 * the root and the name.  A client in Java would not meet us if we wrote the
 * name in an escaped form, and both would hold the lock.
 *
 * The znodes of a root are persistent, as a contender's may be, so none of them
 * may look like one.
 */
static bool
is_like_queue_node(const char *component, size_t size, bool is_of_root)
{
	size_t		prefix_length;
	int32_t		sequence;

	if (is_of_root)
		return recipe_split_node(component, size, &prefix_length, &sequence);
	return recipe_has_client_mark(component, size);
}

/*
 * Check each character of a component; *offset is set only if one is refused.
 * The rules are those of the server's PathUtils.validatePath(), which sees
 * UTF-16: what lies beyond U+FFFF reaches it as surrogates.
 */
static RecipeNameError
check_characters(const char *component, size_t size, size_t *offset)
{
	size_t		width;

	for (size_t i = 0; i < size; i += width)
	{
		uint32_t	code;

		width = foreign_take(component + i, size - i, &code);
		if (code <= 0x1F || (code >= 0x7F && code <= 0x9F) ||
			(code >= 0xE000 && code <= 0xF8FF) || code >= 0xFFF0)
		{
			*offset = i;
			if (code == FOREIGN_NO_CHARACTER)
				return RECIPE_NAME_ENCODING;
			return RECIPE_NAME_CHARACTER;
		}
	}
	return RECIPE_NAME_OK;
}
