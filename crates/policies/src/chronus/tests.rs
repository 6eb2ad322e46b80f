//! Admission, plans and places.
