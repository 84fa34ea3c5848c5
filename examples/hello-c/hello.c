#include <stdio.h>

static const char *greeting = "hello";

int main(void) {
    printf("%s\n", greeting);
    return 0;
}
