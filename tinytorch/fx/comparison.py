raise ImportError("see /work/lead/F/NOTE-comparison.md: F2's file is speed_comparison.py, F1 writes tracer_comparison.py")
