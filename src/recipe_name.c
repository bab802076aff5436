/*-------------------------------------------------------------------------
 *
 * recipe_name.c
 *	  Lock names and roots, and the znode paths that they make.
 *
 *-------------------------------------------------------------------------
 */
#include "recipe.h"

#include <string.h>

static RecipeNameError check_components(const char *path, size_t start,
										size_t *offset, size_t *length);
static RecipeNameError check_component(const char *component, size_t size,
									   bool is_first, size_t *offset,
									   size_t *length);
static RecipeNameError check_characters(const char *component, size_t size,
										size_t *offset, size_t *length);
static RecipeNameError check_character(uint32_t code);
static bool decode_utf8(const char *text, uint32_t *code, size_t *length);

RecipeNameError
recipe_check_name(const char *name, size_t *offset, size_t *length)
{
	*offset = 0;
	*length = strlen(name);

	if (*length == 0)
		return RECIPE_NAME_EMPTY;
	if (*length > RECIPE_NAME_MAX)
		return RECIPE_NAME_TOO_LONG;
	return check_components(name, 0, offset, length);
}

bool
recipe_suggest_name(char suggestion[RECIPE_NAME_MAX + 1], const char *name)
{
	size_t		size = strlen(name);
	size_t		offset;
	size_t		length;

	if (size > RECIPE_NAME_MAX)
		return false;
	memcpy(suggestion, name, size + 1);
	while (recipe_check_name(suggestion, &offset, &length) ==
		   RECIPE_NAME_LIKE_QUEUE_NODE)
	{
		size_t		end = offset + length;

		if (size == RECIPE_NAME_MAX)
			return false;
		memmove(suggestion + end + 1, suggestion + end, size - end + 1);
		suggestion[end] = '_';
		size++;
	}
	return recipe_check_name(suggestion, &offset, &length) == RECIPE_NAME_OK;
}

RecipeNameError
recipe_check_root(const char *root, size_t *offset, size_t *length)
{
	RecipeNameError error;
	size_t		first_length;

	*offset = 0;
	*length = strlen(root);

	if (*length == 0)
		return RECIPE_NAME_EMPTY;
	if (*length > RECIPE_ROOT_MAX)
		return RECIPE_NAME_TOO_LONG;
	if (root[0] != '/')
		return RECIPE_NAME_NOT_ABSOLUTE;
	if (*length == 1)
	{
		*length = 0;
		return RECIPE_NAME_OK;
	}

	error = check_components(root, 1, offset, length);
	if (error != RECIPE_NAME_OK)
		return error;

	first_length = strcspn(root + 1, "/");
	if (first_length == strlen("zookeeper") &&
		memcmp(root + 1, "zookeeper", first_length) == 0)
	{
		*offset = 1;
		*length = first_length;
		return RECIPE_NAME_RESERVED;
	}
	return RECIPE_NAME_OK;
}

bool
recipe_lock_path(char *path, const char *root, const char *name)
{
	size_t		root_length = strcmp(root, "/") == 0 ? 0 : strlen(root);
	size_t		name_length = strlen(name);

	/* Each against its own bound first, so that the sum cannot overflow. */
	if (root_length >= RECIPE_PATH_SIZE || name_length >= RECIPE_PATH_SIZE ||
		root_length + 1 + name_length + 1 + RECIPE_NODE_SIZE > RECIPE_PATH_SIZE)
	{
		path[0] = '\0';
		return false;
	}

	memcpy(path, root, root_length);
	path[root_length] = '/';
	memcpy(path + root_length + 1, name, name_length + 1);
	return true;
}

/*
 * Check the components of a path from byte `start` on.  *offset and *length
 * are set as in recipe_check_name(), relative to the whole path: of one that
 * is too deep, to the first component that is.
 */
static RecipeNameError
check_components(const char *path, size_t start, size_t *offset,
				 size_t *length)
{
	for (int depth = 1;; depth++)
	{
		size_t		size = strcspn(path + start, "/");
		RecipeNameError error = check_component(path + start, size,
												depth == 1, offset, length);

		if (error == RECIPE_NAME_OK && depth > RECIPE_DEPTH_MAX)
		{
			*offset = 0;
			*length = size;
			error = RECIPE_NAME_TOO_DEEP;
		}
		if (error != RECIPE_NAME_OK)
		{
			*offset += start;
			return error;
		}

		start += size;
		if (path[start] == '\0')
			break;
		start++;				/* the slash */
	}

	*offset = 0;
	*length = 0;
	return RECIPE_NAME_OK;
}

/*
 * Check one component of `size` bytes.  *offset and *length are set to the
 * offending piece, relative to the component, or to all of it.
 *
 * All components but a name's first stand in the znode of another name, which
 * may be a lock, too: among its contenders.  What ends in a sequence number
 * there is one of them for everybody, and stays for as long as somebody uses
 * the name: with a small number it would be ahead of all, with any number in
 * the way of every try.  A name's first component stands in the root, which
 * is no lock, so there it may end as it likes.  That is the ordinary case:
 * 'job-1700000000', 'order-' || id.  So it is with a root in the chroot.
 *
 * Further down such names are refused, and not written down as others that
 * are harmless: the znode of a lock is root and name for all clients.  Who
 * goes by that from Java would hold 'a/b-1700000000' at the same time as who
 * goes by an escape that zklock alone knows.
 */
static RecipeNameError
check_component(const char *component, size_t size, bool is_first,
				size_t *offset, size_t *length)
{
	RecipeNameError error;
	size_t		prefix_length;
	int32_t		sequence;

	*offset = 0;
	*length = size;

	if (size == 0)
		return RECIPE_NAME_EMPTY_COMPONENT;
	if ((size == 1 && component[0] == '.') ||
		(size == 2 && component[0] == '.' && component[1] == '.'))
		return RECIPE_NAME_DOTS;

	error = check_characters(component, size, offset, length);
	if (error != RECIPE_NAME_OK)
		return error;

	if (!is_first &&
		recipe_split_node(component, size, &prefix_length, &sequence))
		return RECIPE_NAME_LIKE_QUEUE_NODE;
	return RECIPE_NAME_OK;
}

/*
 * Check each character of a component; *offset and *length are set only if
 * one is refused.
 */
static RecipeNameError
check_characters(const char *component, size_t size, size_t *offset,
				 size_t *length)
{
	size_t		width;

	for (size_t i = 0; i < size; i += width)
	{
		uint32_t	code;
		RecipeNameError error;

		if (decode_utf8(component + i, &code, &width))
			error = check_character(code);
		else
			error = RECIPE_NAME_ENCODING;

		if (error != RECIPE_NAME_OK)
		{
			*offset = i;
			*length = width;
			return error;
		}
	}
	return RECIPE_NAME_OK;
}

/*
 * May this character stand in a path?  The rules of the server's
 * PathUtils.validatePath(), which sees UTF-16: what lies beyond U+FFFF
 * reaches it as surrogates.
 */
static RecipeNameError
check_character(uint32_t code)
{
	if (code <= 0x1F || (code >= 0x7F && code <= 0x9F))
		return RECIPE_NAME_CONTROL;
	if (code > 0xFFFF)
		return RECIPE_NAME_BEYOND_BMP;
	if ((code >= 0xD800 && code <= 0xF8FF) || code >= 0xFFF0)
		return RECIPE_NAME_UNSUPPORTED;
	return RECIPE_NAME_OK;
}

/*
 * Decode the character at the start of a text that is not empty.  *length is
 * how many bytes it has.  false if the bytes are not UTF-8 (a stray or
 * missing continuation byte, an overlong form, beyond U+10FFFF); *length is
 * then how many of them belong to the attempt.  An encoded surrogate is
 * decoded, for check_character() to name it.  Never reads beyond the first
 * byte that is not a continuation byte, hence not beyond a NUL or a slash.
 */
static bool
decode_utf8(const char *text, uint32_t *code, size_t *length)
{
	/* the smallest code point that needs a sequence of this many bytes */
	static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *bytes = (const unsigned char *) text;
	size_t		width;

	if (bytes[0] < 0x80)
		width = 1;
	else if ((bytes[0] & 0xE0) == 0xC0)
		width = 2;
	else if ((bytes[0] & 0xF0) == 0xE0)
		width = 3;
	else if ((bytes[0] & 0xF8) == 0xF0)
		width = 4;
	else
	{
		*length = 1;
		return false;
	}

	*code = width == 1 ? bytes[0] : bytes[0] & (0x7Fu >> width);
	for (*length = 1; *length < width; (*length)++)
	{
		if ((bytes[*length] & 0xC0) != 0x80)
			return false;
		*code = (*code << 6) | (bytes[*length] & 0x3F);
	}
	return *code >= smallest[width] && *code <= 0x10FFFF;
}
