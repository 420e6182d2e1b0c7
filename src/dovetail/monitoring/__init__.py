r"""Monitoring of running joins: in the terminal, in a browser, and in a report afterwards.

a join --Moment--> Recording --> panel in the terminal
                       |    \--> page in a browser, report
                       v
                   JSON lines --> `dovetail watch`, in another process
"""
