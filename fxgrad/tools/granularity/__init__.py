"""How fine a program is: scalars, arrays, or blocks of them, with what each costs."""
