"""Result files in, pictures and pages out."""
