"""A coordinator that lies: named attacks and generated conversations (src/dagora/audit/lies.py and beside it).

    test_attacks.py         the attacks of the catalogue (lying_server.py), each on the data that suits it best
    test_conversations.py   generated conversations over all five aggregations: DAGORA_LIES says how many (200),
                            DAGORA_LIES_SEED which (0)
    test_harvest.py         the kit itself: honest scripts give the totals, and planted leaks are found
    test_audit_liar.py      `dagora audit --adversary lying-server`
    __main__.py             the same attacks and conversations as a table: python -m tests.lying_server

What the kit found before the flaws were mended (commit 84e75ca, python -m tests.lying_server, seed 0).  The error is
that of the best candidate for the victim's summand, the guess that of the best share of the honest total (medians over
the numbers that the honest total does not give):

    attack             aggregation   error    guess    recovered
    narrow words       masked        4.8e-16  7.7e-01  the victim
    narrow retry       masked        1.6e-16  1.2e-01  the one site that balks
    isolated noise     gaussian      0        7.4e-01  the victim, with its own share of the noise only
    split cohorts      shared        0        1.0e+00  the victim (seven sites, thresholds 2 and 4)
    another cohort     masked        6.6e-17  7.7e-01  the victim
    another cohort     shared        6.6e-17  7.7e-01  the victim
    another cohort     encrypted     6.6e-17  7.7e-01  the victim
    runs without one   masked        1.7e-16  1.0e+00  all four sites
    runs without one   shared        1.7e-16  1.0e+00  all four sites
    runs without one   encrypted     1.7e-16  1.0e+00  all four sites
    single ciphertext  encrypted     0        7.1e-01  all four sites
    subsets, changed field, swapped keys, impostor; split cohorts under masked, encrypted and gaussian: nobody

An honest server recovered a site, too: one whose numbers outgrew the narrow words, by the retry with wide words
(test_an_honest_run_in_which_one_sites_numbers_grow_gives_it_away_by_no_retry[masked]).

Of the first 200 generated conversations 188 were under a protection, and 10 of these gave a single site away, the first
of them the 34th: 5 of 86 under masked, 4 of 61 under shared and 1 of 34 under gaussian.  Of 8,495 further ones 476 did.
In pytest 31 of the 87 tests in this folder failed.
"""
