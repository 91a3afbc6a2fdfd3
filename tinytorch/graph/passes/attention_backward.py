"""The gradients of attention that is written out, where a training step was traced with them."""

from __future__ import annotations

from tinytorch.graph.passes.attention_parts import Gradients, WrittenOut
from tinytorch.graph.passes.matrix_reader import MatrixReader
from tinytorch.graph.semantics import AnyNode


class AttentionBackward(MatrixReader):
    """Finds the products that are the gradients of an attention."""

    def _take_backward(self, each: WrittenOut) -> bool:
        """Whether all other users of weights and scores are their gradients; notes those.

        dvalues = dropped.mT @ g          dweights = g @ values.mT * kept
        dscores = softmax_backward(dweights, weights), masked, * scale
        dquery = dscores @ key            dkeys = query.mT @ dscores, or dkey = dscores.mT @ query
        """
        dropped, softmax = each.chain[0], each.softmax
        changes = [n for n in self._users(softmax) if self._is(n, "softmax_backward")]
        others = [n for n in each.chain if n is not dropped and n is not softmax]
        if len(changes) > 1 or any(len(self._users(n)) != 1 for n in others):
            return False
        found = each.backward = Gradients()
        allowed = {each.last, dropped, *changes}
        if changes and not self._take_change(each, changes[0], found):
            return False
        for user in self._users(dropped):
            if self._is(user, "permute") and self._are_transposed(user, dropped):
                of_values = self._only_user(user)
                if not self._is(of_values, "matmul") or self._operands(of_values)[0] is not user:
                    return False
                g = self._operands(of_values)[1]
                if found.g is not None and found.g is not g:
                    return False
                found.g, found.values = g, of_values
                found.readers.append(of_values)
                allowed.add(user)
        all_known = all(n in allowed for n in (*self._users(dropped), *self._users(softmax)))
        return all_known and (not changes or self._take_scores(each, changes[0], found))

    def _take_change(self, each: WrittenOut, change: AnyNode, found: Gradients) -> bool:
        """Whether softmax's backward begins with g @ values.mT, times what is kept."""
        product = self._operands(change)[0]
        if each.kept is not None:
            if not self._is(product, "mul") or each.kept not in self._operands(product):
                return False
            a, b = self._operands(product)
            if self._only_user(product) is not change:
                return False
            product = b if a is each.kept else a
        if not self._is(product, "matmul") or self._only_user(product) is None:
            return False
        found.g, values = self._operands(product)
        found.readers.append(product)
        return self._are_transposed(values, each.values)

    def _take_scores(self, each: WrittenOut, change: AnyNode, found: Gradients) -> bool:
        """Follow the gradient of the scores to those of query and keys."""
        current = change
        if each.fill is not None:
            masked = self._only_user(current)
            if not self._is(masked, "where"):
                return False
            mask, yes, no = self._given(masked)
            zero, kept = (yes, no) if each.hides else (no, yes)
            if mask is not each.mask or zero != 0.0 or self._behind(kept) is not current:
                return False
            current = masked
        if each.scale != 1.0:
            scaled = self._only_user(current)
            if self._scaled(scaled) != (current, each.scale):
                return False
            current = scaled
        for user in self._users(current):
            if self._is(user, "permute") and self._are_transposed(user, current):
                of_key = self._only_user(user)
                is_product = self._is(of_key, "matmul")
                if not is_product or self._operands(of_key) != (user, each.query):
                    return False
                found.key = of_key
                continue
            if not self._is(user, "matmul"):
                return False
            a, b = self._operands(user)
            if a is current and self._are_transposed(b, each.keys):
                found.query = user
            elif b is current and self._are_transposed(a, each.query):
                found.keys = user
            else:
                return False
        return True
