/*-------------------------------------------------------------------------
 *
 * test_foreign.c
 *	  Unit test of src/common/foreign.c: text of other clients is shown escaped
 *	  and cut at characters.  Tables of cases, the expected value first.
 *
 * Texts are copied to memory of just their length, so that the sanitizers see a
 * look beyond their end.
 *
 *-------------------------------------------------------------------------
 */
#include "foreign.h"
#include "tap.h"

#include <stdlib.h>

#define NELEMS(array) ((int) (sizeof(array) / sizeof((array)[0])))

/* What is shown of a text: each character, or what stands for it. */
static const struct
{
	const char *shown;
	const char *text;
	size_t		length;
}			texts[] = {
	{"", "", 0},
	{"plain", "plain", 5},
	{"M\303\274ller", "M\303\274ller", 7},
	{"\346\227\245\346\234\254", "\346\227\245\346\234\254", 6},
	{"\360\237\230\200", "\360\237\230\200", 4},

	/* what moves a terminal's cursor, ends lines, rings */
	{"<U+001B>[2J", "\033[2J", 4},
	{"a<U+000A>b<U+000D>c<U+0007>", "a\nb\rc\a", 6},
	{"a<U+0000>b", "a\0b", 3},
	{"<U+007F><U+0080><U+009B>31m<U+009F>", "\177\302\200\302\233" "31m\302\237", 10},
	{"\302\240", "\302\240", 2},

	/* what turns text round, or hides in it */
	{"<U+202E>txt.exe", "\342\200\256txt.exe", 10},
	{"<U+2066>a<U+2069>", "\342\201\246a\342\201\251", 7},
	{"<U+200E><U+200F><U+061C>", "\342\200\216\342\200\217\330\234", 8},
	{"a<U+200B>b<U+FEFF>", "a\342\200\213b\357\273\277", 8},
	{"<U+2028><U+2029>", "\342\200\250\342\200\251", 6},
	{"<U+E0041>", "\363\240\201\201", 4},
	{"<U+FFFE>", "\357\277\276", 3},
	{"<U+10FFFF>", "\364\217\277\277", 4},

	/* no characters */
	{"<FF><FE>", "\377\376", 2},
	{"<80>", "\200", 1},
	{"a<C3>", "a\303", 2},
	{"<E2><82>", "\342\202", 2},
	{"<F0><9F><98>", "\360\237\230", 3},
	{"<E2>(<A1>", "\342(\241", 3},
	{"<C0><AF>", "\300\257", 2},
	{"<E0><80><AF>", "\340\200\257", 3},
	{"<F0><80><80><AF>", "\360\200\200\257", 4},
	{"<ED><A0><80>", "\355\240\200", 3},
	{"<F4><90><80><80>", "\364\220\200\200", 4},
	{"<F8><88><80><80><80>", "\370\210\200\200\200", 5},

	/* a first byte of five or six, and what might be taken for four or six */
	{"<F8><90><80><80>", "\370\220\200\200", 4},
	{"<FC><80><80><81><81><81>", "\374\200\200\201\201\201", 6},
	{"<FE><80><80><81><81><81>", "\376\200\200\201\201\201", 6},
};

static const struct
{
	int			depth;
	const char *text;
}			nestings[] = {
	{0, ""},
	{0, "plain"},
	{1, "{}{}"},
	{1, "{\"client\":\"zklock\"}"},
	{2, "{\"a\":[]}"},
	{2, "{\"a\":[],\"b\":[]}"},
	{4, "[[[["},
	{1, "]]]][[[[[" },
	{3, "{\"a\":\"[[\"}"},
};

static void
test_texts(void)
{
	for (int i = 0; i < NELEMS(texts); i++)
	{
		char	   *text = malloc(texts[i].length);
		char		shown[256] = "";
		size_t		nbytes;

		memcpy(text, texts[i].text, texts[i].length);
		for (size_t at = 0; at < texts[i].length; at += nbytes)
		{
			uint32_t	number;
			char		escape[FOREIGN_ESCAPE_SIZE];

			nbytes = foreign_take(text + at, texts[i].length - at, &number);
			foreign_escape(escape, number, (unsigned char) text[at]);
			if (foreign_is_plain(number))
				strncat(shown, text + at, nbytes);
			else
				strcat(shown, escape);
		}
		is_str(texts[i].shown, shown, "text %d", i);
		free(text);
	}
}

static void
test_nestings(void)
{
	for (int i = 0; i < NELEMS(nestings); i++)
		is_int(nestings[i].depth,
			   foreign_nesting(nestings[i].text, strlen(nestings[i].text)),
			   "nesting of %s", nestings[i].text);
}

/* A character in so many bytes, be it the right number or not. */
static void
encode(char text[4], uint32_t number, size_t nbytes)
{
	for (size_t i = nbytes; i-- > 1; number >>= 6)
		text[i] = (char) (0x80 | (number & 0x3F));
	text[0] = (char) (nbytes == 1 ? number : number | (0xF00u >> nbytes & 0xFF));
}

/* Every character is taken as it was encoded, but not in more bytes than it needs. */
static void
test_every_character(void)
{
	static const uint32_t limits[] = {0, 0x80, 0x800, 0x10000, 0x110000};
	char		text[4];
	uint32_t	number;
	uint32_t	wrong = 0;

	for (size_t nbytes = 1; nbytes <= 4; nbytes++)
	{
		for (uint32_t code = limits[nbytes - 1]; code < limits[nbytes]; code++)
		{
			bool		is_half = code >= 0xD800 && code <= 0xDFFF;

			encode(text, code, nbytes);
			if (foreign_take(text, nbytes, &number) != (is_half ? 1 : nbytes) ||
				number != (is_half ? FOREIGN_NO_CHARACTER : code))
				wrong++;
		}
		encode(text, limits[nbytes - 1] - 1, nbytes);
		ok(nbytes == 1 || (foreign_take(text, nbytes, &number) == 1 &&
						   number == FOREIGN_NO_CHARACTER),
		   "one that needs less than %d bytes", (int) nbytes);
	}
	is_int(0, wrong, "all characters but halves of pairs are taken whole");

	wrong = 0;
	for (int first = 0x80; first <= 0xFF; first++)
	{
		encode(text, 0x100000, 4);
		text[0] = (char) first;
		if ((first < 0xC2 || first > 0xF4) &&
			(foreign_take(text, 4, &number) != 1 || number != FOREIGN_NO_CHARACTER))
			wrong++;
	}
	is_int(0, wrong, "no byte that begins no character is taken");
}

/* All of ASCII that has a glyph is plain, and every escape fits. */
static void
test_all(void)
{
	int			nplain = 0;
	size_t		longest = 0;

	for (uint32_t number = 0; number <= 0x10FFFF; number++)
	{
		char		escape[FOREIGN_ESCAPE_SIZE];

		foreign_escape(escape, number, 0);
		longest = strlen(escape) > longest ? strlen(escape) : longest;
		nplain += number < 0x80 && foreign_is_plain(number);
	}
	is_int(95, nplain, "plain characters of ASCII");
	is_int((int) strlen("<U+10FFFF>"), (int) longest, "longest escape");
}

int
main(void)
{
	test_texts();
	is_int(1, foreign_nesting("[[", 1), "nesting of no more than its length");
	test_nestings();
	test_every_character();
	test_all();
	return done_testing();
}
