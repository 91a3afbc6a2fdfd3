// The secret of a join link stands behind its #, which no browser sends: it goes into the form here.
const field = document.getElementById("secret");
if (field && location.hash.length > 1) {
  field.value = decodeURIComponent(location.hash.slice(1));
  history.replaceState(null, "", location.pathname);
}
